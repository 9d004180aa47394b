//! The run itself: place a wave of work, kill a worker, place the next; then wait until everything is done.
//!
//! Work comes in waves, one before every kill, so that there is some in hand whenever a worker dies. Half of the kills
//! come at a random moment; the other half when the provider has just acted and the worker does not know it yet.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rowlock::{Ended, JobFilter, JobView, Observe, Rowlock, State, Status};
use sqlx::Connection;

use super::{
    super::own::{Site, Tables},
    crew::Crew,
    provider::Provider,
    show::Show,
};

/// How often the plan is looked at, and how often the database.
const TICK: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a wave of work the next kill comes, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 40..320;
/// How long to wait for a call at the provider before the kill comes anyway.
const AIM_MAX: Duration = Duration::from_secs(1);

/// What a scene adds to the run.
pub(crate) trait Act<DB: Tables> {
    /// Whether a case is an end as good as any: somebody will decide.
    const CASES_ARE_FINE: bool = false;

    /// Puts work in, in the caller's transaction.
    async fn place(&self, ground: &mut Ground<DB>, work: RangeInclusive<i64>) -> Result<()>;

    /// How far the scene is, in steps of the bar, and a word about it.
    async fn progress(&self, ground: &mut Ground<DB>, kills: usize) -> Result<(i64, String)>;
}

/// The application's side of the database.
pub(crate) struct Ground<DB: Tables> {
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) observe: Observe,
    pub(crate) conn: DB::Connection,
    prefix: String,
}

impl<DB: Tables> Ground<DB> {
    /// Makes the tables: the library's and the scene's.
    pub(crate) async fn open(site: &Site, schema: &str) -> Result<Ground<DB>> {
        let rowlock = Rowlock::<DB>::open_in(&site.url, &site.schema)?;
        rowlock.migrate().await?;
        let mut conn = <DB::Connection as Connection>::connect(&site.url).await?;
        let prefix = site.prefix("demo");
        DB::script(&mut conn, schema.replace("demo_", &prefix)).await?;
        Ok(Ground {
            observe: rowlock.observe(),
            rowlock,
            conn,
            prefix,
        })
    }

    /// A statement with the tables' real names.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace("demo_", &self.prefix)
    }

    /// Two numbers per row.
    pub(crate) async fn pairs(&mut self, sql: &str) -> Result<Vec<(i64, i64)>> {
        let sql = self.sql(sql);
        Ok(DB::pairs(&mut self.conn, sql).await?)
    }

    /// The two numbers of the only row.
    pub(crate) async fn pair(&mut self, sql: &str) -> Result<(i64, i64)> {
        match self.pairs(sql).await?.pop() {
            Some(pair) => Ok(pair),
            None => anyhow::bail!("the demo's tables cannot be counted"),
        }
    }

    /// Every job there is.
    pub(crate) async fn jobs(&self) -> Result<Vec<JobView>> {
        let (mut jobs, mut filter) = (Vec::new(), JobFilter::default());
        filter.max = 1000;
        loop {
            let page = self.observe.jobs(&filter).await?;
            let Some(last) = page.last() else { return Ok(jobs) };
            filter.below = Some(last.id);
            jobs.extend(page);
        }
    }

    /// Attempts of these jobs that ended with their worker.
    pub(crate) async fn cut_short(&self, jobs: &[JobView]) -> Result<i64> {
        let mut cut_short = 0;
        for job in jobs {
            if job.epoch > 1 || job.state != State::Finished {
                let attempts = self.observe.attempts(job.id).await?;
                cut_short += attempts.iter().filter(|a| a.outcome == Ended::Lost).count() as i64;
            }
        }
        Ok(cut_short)
    }
}

/// How big a run is.
pub(crate) struct Size {
    /// Units of work to place.
    pub(crate) work: i64,
    /// Steps of the bar that one unit takes, and what they are called.
    pub(crate) steps: i64,
    pub(crate) unit: &'static str,
    pub(crate) kills: usize,
    /// The bar's own length; with what is said beside it, it must fit a narrow terminal.
    pub(crate) bar: usize,
}

/// How a run went.
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    pub(crate) kills: usize,
    /// Kills between the provider's deed and the worker's knowledge of it.
    pub(crate) struck: usize,
    /// What was not over when the time was.
    pub(crate) stuck: Option<String>,
}

/// When the next worker dies.
#[derive(Clone, Copy)]
enum Next {
    /// Not before the first work is on its way.
    Waiting,
    /// All have.
    Nobody,
    At(Instant),
    /// When the provider has acted for it, or at this time.
    Aimed(Instant),
}

pub(crate) struct Run<'a, DB: Tables, A> {
    ground: &'a mut Ground<DB>,
    act: A,
    crew: &'a mut Crew,
    provider: Option<&'a mut Provider>,
    size: Size,
    placed: i64,
    struck: usize,
    limit: Duration,
    rng: fastrand::Rng,
    bar: ProgressBar,
}

impl<'a, DB: Tables, A: Act<DB>> Run<'a, DB, A> {
    pub(crate) fn new(
        show: &Show,
        ground: &'a mut Ground<DB>,
        crew: &'a mut Crew,
        provider: Option<&'a mut Provider>,
        (act, size): (A, Size),
    ) -> Self {
        Run {
            ground,
            act,
            crew,
            provider,
            placed: 0,
            struck: 0,
            limit: show.limit,
            rng: fastrand::Rng::with_seed(show.seed ^ 0x5eed),
            bar: bar(show.quiet, &size),
            size,
        }
    }

    /// Runs until everything is done, or until it is clear that it will not be. Nobody is at work any more then.
    pub(crate) async fn finish(mut self) -> Result<Ran> {
        let start = Instant::now();
        let mut next = Next::Waiting;
        let mut looked_at = start;
        let mut tick = tokio::time::interval(TICK);
        self.place_wave(0).await?;
        while start.elapsed() < self.limit {
            tokio::select! {
                biased;
                Some(pid) = strike(&mut self.provider) => next = self.strike(pid, next).await?,
                _ = tick.tick() => {}
            }
            let now = Instant::now();
            if let Next::At(at) | Next::Aimed(at) = next
                && now >= at
            {
                self.aim(false).await?;
                self.crew.kill(self.rng.usize(..self.crew.len())).await?;
                next = self.plan().await?;
            }
            if now.duration_since(looked_at) < LOOK_EVERY {
                continue;
            }
            looked_at = now;
            self.crew.look_after()?;
            let done = self.show().await?;
            if matches!(next, Next::Waiting) && done > 0 {
                next = self.plan().await?;
            }
            // As many die as was said, also when the work is over first.
            let one_to_die = matches!(next, Next::At(_) | Next::Aimed(_));
            if !one_to_die && self.placed == self.size.work && over(&self.ground.observe.status().await?) {
                break;
            }
        }
        self.bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let stuck = self.stuck().await?;
        // Nobody may be at work while the count is made.
        self.crew.dismiss(Duration::from_secs(5)).await;
        Ok(Ran {
            seconds,
            kills: self.crew.kills,
            struck: self.struck,
            stuck,
        })
    }

    /// The provider has acted for this process and keeps the answer back: the moment to kill it, if that is what is
    /// wanted now.
    async fn strike(&mut self, pid: u32, next: Next) -> Result<Next> {
        let wanted = matches!(next, Next::Aimed(_));
        let before = self.crew.kills;
        if wanted {
            self.crew.kill_pid(pid).await?;
            self.struck += self.crew.kills - before;
        }
        if let Some(provider) = &mut self.provider {
            provider.go_on(self.crew.kills > before).await?;
        }
        if wanted { self.plan().await } else { Ok(next) }
    }

    async fn aim(&mut self, on: bool) -> Result<()> {
        match &mut self.provider {
            Some(provider) => provider.aim(on).await,
            None => Ok(()),
        }
    }

    /// Chooses the next death, and places a wave of work so that it finds some in hand.
    async fn plan(&mut self) -> Result<Next> {
        if self.crew.kills >= self.size.kills {
            return Ok(Next::Nobody);
        }
        self.place_wave(self.crew.kills + 1).await?;
        let now = Instant::now();
        if self.provider.is_some() && self.rng.bool() {
            self.aim(true).await?;
            return Ok(Next::Aimed(now + AIM_MAX));
        }
        Ok(Next::At(now + Duration::from_millis(self.rng.u64(GAP_MS))))
    }

    /// Places work up to this wave's share.
    async fn place_wave(&mut self, wave: usize) -> Result<()> {
        let waves = self.size.kills as i64 + 1;
        // Rounded up: the first wave holds some even when there are more kills than work.
        let upto = ((self.size.work * (wave as i64 + 1) + waves - 1) / waves).min(self.size.work);
        if upto > self.placed {
            self.act.place(self.ground, self.placed + 1..=upto).await?;
            self.placed = upto;
        }
        Ok(())
    }

    /// Moves the bar; answers how far the scene is.
    async fn show(&mut self) -> Result<i64> {
        let (done, says) = self.act.progress(self.ground, self.crew.kills).await?;
        self.bar.set_message(says);
        self.bar.set_position(u64::try_from(done).unwrap_or_default());
        Ok(done)
    }

    /// What is not over, in words; `None` when everything is.
    async fn stuck(&self) -> Result<Option<String>> {
        let status = self.ground.observe.status().await?;
        let mut parts = Vec::new();
        for lane in &status.lanes {
            let retired = if A::CASES_ARE_FINE { 0 } else { lane.cases };
            for (count, what) in [
                (lane.due, "due"),
                (lane.scheduled, "scheduled"),
                (lane.leased, "leased"),
                (retired, "retired"),
            ] {
                if count > 0 {
                    parts.push(format!("{count} {} {what}", lane.kind));
                }
            }
        }
        if self.placed < self.size.work {
            parts.push(format!(
                "{} {} never placed",
                self.size.work - self.placed,
                self.size.unit
            ));
        }
        Ok((!parts.is_empty()).then(|| parts.join(", ")))
    }
}

/// The next caller that the provider has in its sights; for ever when there is no provider.
async fn strike(provider: &mut Option<&mut Provider>) -> Option<u32> {
    match provider {
        Some(provider) => provider.strike().await,
        None => std::future::pending().await,
    }
}

/// Nothing waits and nothing runs. What was retired will not run again by itself.
fn over(status: &Status) -> bool {
    status
        .lanes
        .iter()
        .all(|lane| lane.due + lane.scheduled + lane.leased == 0)
}

fn bar(quiet: bool, size: &Size) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    // Draws on stderr, and nothing at all when that is no terminal.
    let bar = ProgressBar::new(u64::try_from(size.work * size.steps).unwrap_or_default());
    let template = format!(
        "  {{bar:{}.green/dim}} {{pos}}/{{len}} jobs · {{msg}} · {{elapsed}}",
        size.bar
    );
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━━─"))
        .with_message("starting workers")
}
