//! The run itself: place a wave of orders, kill a worker, place the next; then wait until everything is done.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rowlock::{Observe, Rowlock, Status};
use sqlx::Connection;
use tokio::sync::mpsc;

use super::{
    super::own::{Site, Tables},
    Args,
    check::{self, Findings},
    crew::Crew,
    provider::{Provider, Strike, Tally},
    shop::{self, ITEMS, ReserveStock},
};

/// How often the plan is looked at, and how often the database.
const TICK: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a wave of orders the next kill comes, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 40..320;
/// How long to wait for a call at the provider before the kill comes anyway.
const AIM_MAX: Duration = Duration::from_secs(1);

/// When the next worker dies.
#[derive(Clone, Copy)]
enum Next {
    /// Not before the first order is on its way.
    Waiting,
    /// All have.
    Nobody,
    At(Instant),
    /// When the provider has acted for it, or at this time.
    Aimed(Instant),
}

pub(crate) struct Play<DB: Tables> {
    rowlock: Rowlock<DB>,
    observe: Observe,
    conn: DB::Connection,
    prefix: String,
    orders: i64,
    placed: i64,
    kills_wanted: usize,
    /// Kills between the provider's deed and the worker's knowledge of it.
    pub(crate) struck: usize,
    limit: Duration,
    rng: fastrand::Rng,
    bar: ProgressBar,
}

impl<DB: Tables> Play<DB> {
    pub(crate) async fn open(site: &Site, args: &Args, seed: u64, rowlock: Rowlock<DB>) -> Result<Play<DB>> {
        let mut conn = <DB::Connection as Connection>::connect(&site.url).await?;
        let (prefix, orders) = (site.prefix("demo"), i64::from(args.orders));
        DB::script(&mut conn, shop::schema(&prefix)).await?;
        for item in 0..ITEMS {
            let sql = format!("insert into {prefix}stock (item, at_start, remaining) values ($1, $2, $2)");
            // Enough for every order, and some to spare, so that what is left says something.
            DB::change(&mut conn, sql, vec![item, orders / ITEMS + 10]).await?;
        }
        Ok(Play {
            observe: rowlock.observe(),
            rowlock,
            conn,
            prefix,
            orders,
            placed: 0,
            kills_wanted: args.kills as usize,
            struck: 0,
            limit: Duration::from_secs(args.limit),
            rng: fastrand::Rng::with_seed(seed ^ 0x5eed),
            bar: bar(args, orders),
        })
    }

    /// Runs until everything is done, or until it is clear that it will not be; gives the seconds.
    pub(crate) async fn run(
        &mut self,
        crew: &mut Crew,
        provider: &Provider,
        mut strikes: mpsc::Receiver<Strike>,
    ) -> Result<f64> {
        let start = Instant::now();
        let mut next = Next::Waiting;
        let mut looked_at = start;
        let mut tick = tokio::time::interval(TICK);
        self.place_wave(0).await?;
        while start.elapsed() < self.limit {
            tokio::select! {
                biased;
                Some(strike) = strikes.recv() => {
                    let before = crew.kills;
                    crew.kill_pid(strike.pid).await?;
                    // The provider has no more to say to the dead; if it has hung up meanwhile, so much the better.
                    let _ = strike.dead.send(());
                    self.struck += crew.kills - before;
                    next = self.plan(crew, provider).await?;
                }
                _ = tick.tick() => {}
            }
            let now = Instant::now();
            if let Next::At(at) | Next::Aimed(at) = next
                && now >= at
            {
                provider.aim(false);
                crew.kill(self.rng.usize(..crew.len())).await?;
                next = self.plan(crew, provider).await?;
            }
            if now.duration_since(looked_at) < LOOK_EVERY {
                continue;
            }
            looked_at = now;
            crew.look_after()?;
            let done = self.show(crew).await?;
            if matches!(next, Next::Waiting) && done > 0 {
                next = self.plan(crew, provider).await?;
            }
            if self.placed == self.orders && over(&self.observe.status().await?) {
                break;
            }
        }
        self.bar.finish_and_clear();
        Ok(start.elapsed().as_secs_f64())
    }

    /// Chooses the next death, and places a wave of orders so that it finds work in hand.
    async fn plan(&mut self, crew: &Crew, provider: &Provider) -> Result<Next> {
        if crew.kills >= self.kills_wanted {
            return Ok(Next::Nobody);
        }
        self.place_wave(crew.kills + 1).await?;
        let now = Instant::now();
        if self.rng.bool() {
            provider.aim(true);
            return Ok(Next::Aimed(now + AIM_MAX));
        }
        Ok(Next::At(now + Duration::from_millis(self.rng.u64(GAP_MS))))
    }

    /// Places orders up to this wave's share. The order and its first job are one commit: neither is there without the
    /// other.
    async fn place_wave(&mut self, wave: usize) -> Result<()> {
        let waves = self.kills_wanted as i64 + 1;
        // Rounded up: the first wave holds an order even when there are more kills than orders.
        let upto = ((self.orders * (wave as i64 + 1) + waves - 1) / waves).min(self.orders);
        let mut tx = self.conn.begin().await?;
        let orders = self.placed + 1..=upto;
        for order in orders.clone() {
            let sql = format!("insert into {}order (order_id, item) values ($1, $2)", self.prefix);
            DB::change(&mut tx, sql, vec![order, order % ITEMS]).await?;
        }
        let first_jobs = orders.map(|order| ReserveStock {
            order,
            item: order % ITEMS,
        });
        self.rowlock.enqueue_all(&mut tx, first_jobs).await?;
        tx.commit().await?;
        self.placed = self.placed.max(upto);
        Ok(())
    }

    /// Moves the bar; answers how many jobs have left their mark in the shop's tables.
    async fn show(&mut self, crew: &Crew) -> Result<i64> {
        let sql = "select (select count(*) from demo_reservation) + (select count(*) from demo_receipt),
                          (select count(*) from demo_payment)";
        let Some((others, paid)) = DB::pairs(&mut self.conn, sql.replace("demo_", &self.prefix))
            .await?
            .pop()
        else {
            bail!("the shop's tables cannot be counted");
        };
        self.bar
            .set_message(format!("{paid} paid · {} workers killed", crew.kills));
        self.bar.set_position(u64::try_from(others + paid).unwrap_or_default());
        Ok(others + paid)
    }

    /// What is not over, in words; `None` when everything is.
    pub(crate) async fn stuck(&self) -> Result<Option<String>> {
        let status = self.observe.status().await?;
        let mut parts = Vec::new();
        for lane in &status.lanes {
            for (count, what) in [
                (lane.due, "due"),
                (lane.scheduled, "scheduled"),
                (lane.leased, "leased"),
                (lane.cases, "retired"),
            ] {
                if count > 0 {
                    parts.push(format!("{count} {} {what}", lane.kind));
                }
            }
        }
        if self.placed < self.orders {
            parts.push(format!("{} orders never placed", self.orders - self.placed));
        }
        Ok((!parts.is_empty()).then(|| parts.join(", ")))
    }

    pub(crate) async fn count(&mut self, tally: &Tally) -> Result<Findings> {
        check::check::<DB>(&mut self.conn, &self.prefix, &self.observe, tally).await
    }
}

/// Nothing waits and nothing runs. What was retired will not run again by itself.
fn over(status: &Status) -> bool {
    status
        .lanes
        .iter()
        .all(|lane| lane.due + lane.scheduled + lane.leased == 0)
}

fn bar(args: &Args, orders: i64) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    // Draws on stderr, and nothing at all when that is no terminal.
    let bar = ProgressBar::new(u64::try_from(orders * 3).unwrap_or_default());
    let style = ProgressStyle::with_template("  {bar:24.green/dim} {pos}/{len} jobs · {msg} · {elapsed}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━━─"))
        .with_message("starting workers")
}
