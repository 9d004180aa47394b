//! The first scene: every order is three jobs in a chain, and workers are killed all the time.

mod check;
mod report;
mod shop;

use std::ops::RangeInclusive;

use anyhow::Result;
use sqlx::Connection;

use self::shop::{ITEMS, ReserveStock};
pub(crate) use self::shop::{Shop, worker};
use super::{
    super::own::Tables,
    crew::Crew,
    provider::{Moods, Provider},
    run::{Act, Ground, Run, Size},
    show::{Scene, Show},
};

/// Set by hand or not, so that an option in the wrong place is noticed.
#[derive(clap::Args)]
#[group(skip)]
#[command(after_help = "--json prints: jobs, done, effects, lost, doubled, kills, seconds")]
pub(crate) struct Args {
    /// How many orders to place; each is three jobs [default: 300]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    orders: Option<u32>,
    /// How many worker processes [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// How many times to kill one with SIGKILL; it is started again each time [default: 24]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: Option<u32>,
}

impl Args {
    /// An option that was set.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let set = [
            (self.orders, "--orders"),
            (self.workers, "--workers"),
            (self.kills, "--kills"),
        ];
        set.iter().find_map(|(value, name)| value.map(|_| *name))
    }

    fn orders(&self) -> u32 {
        self.orders.unwrap_or(300)
    }

    fn workers(&self) -> u32 {
        self.workers.unwrap_or(4)
    }

    fn kills(&self) -> u32 {
        self.kills.unwrap_or(24)
    }
}

impl Scene for Args {
    type Ended = report::Ended;

    fn intro(&self, show: &Show) -> String {
        format!(
            "{} orders through {} worker processes on {}, killing one {} times …",
            self.orders(),
            self.workers(),
            show.database(),
            self.kills()
        )
    }

    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<report::Ended> {
        let mut ground = Ground::<DB>::open(&show.site, shop::SCHEMA).await?;
        let orders = i64::from(self.orders());
        for item in 0..ITEMS {
            let sql = ground.sql("insert into demo_stock (item, at_start, remaining) values ($1, $2, $2)");
            // Enough for every order, and some to spare, so that what is left says something.
            DB::change(&mut ground.conn, sql, vec![item, orders / ITEMS + 10]).await?;
        }
        let moods = Moods {
            drops: 3,
            misses: 0,
            refuses: 0,
            slow: 3,
        };
        let mut provider = Provider::start(show, moods).await?;
        let role = ["orders", "--provider", &provider.address.to_string()].map(str::to_owned);
        let crew = crew.insert(Crew::new(&show.site, role.into())?);
        crew.hire(self.workers() as usize)?;
        let size = Size {
            work: orders,
            steps: 3,
            unit: "orders",
            kills: self.kills() as usize,
            bar: 24,
        };
        let ran = Run::new(show, &mut ground, crew, Some(&mut provider), (Orders, size));
        let ran = ran.finish().await?;
        let found = check::check(&mut ground, &provider.tally().await?).await?;
        Ok(report::Ended {
            found,
            ran,
            workers: self.workers(),
            kills_wanted: self.kills(),
        })
    }
}

struct Orders;

impl<DB: Tables> Act<DB> for Orders {
    /// The order and its first job are one commit: neither is there without the other.
    async fn place(&self, ground: &mut Ground<DB>, orders: RangeInclusive<i64>) -> Result<()> {
        let insert = ground.sql("insert into demo_order (order_id, item) values ($1, $2)");
        let mut tx = ground.conn.begin().await?;
        for order in orders.clone() {
            DB::change(&mut tx, insert.clone(), vec![order, order % ITEMS]).await?;
        }
        let first_jobs = orders.map(|order| ReserveStock {
            order,
            item: order % ITEMS,
        });
        ground.rowlock.enqueue_all(&mut tx, first_jobs).await?;
        Ok(tx.commit().await?)
    }

    /// How many jobs have left their mark in the shop's tables.
    async fn progress(&self, ground: &mut Ground<DB>, kills: usize) -> Result<(i64, String)> {
        let sql = "select (select count(*) from demo_reservation) + (select count(*) from demo_receipt),
                          (select count(*) from demo_payment)";
        let (others, paid) = ground.pair(sql).await?;
        Ok((others + paid, format!("{paid} paid · {kills} workers killed")))
    }
}
