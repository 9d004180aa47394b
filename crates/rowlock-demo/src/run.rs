//! The run itself: place a wave of work, kill a worker, place the next; then wait until everything is done.
//!
//! Work comes in waves, one before every kill, so that jobs are running whenever a worker dies. Half of the kills
//! come at a random moment; the other half when the provider has just acted and the worker does not know it yet.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rowlock::observe::Status;

use super::{
    crew::Crew,
    ground::Ground,
    own::Tables,
    provider::Provider,
    record::{Faults, Tape},
    report,
    show::Show,
};

/// How often the plan is checked, and how often the database is read.
const TICK: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a wave of work the next kill comes, in milliseconds.
const GAP_MS: std::ops::Range<u64> = 40..320;
/// How long to wait for a call at the provider before the kill comes anyway.
const AIM_MAX: Duration = Duration::from_secs(1);

/// What a scene adds to the run.
pub(crate) trait Act<DB: Tables> {
    /// Whether a case counts as a good end: a person will decide.
    const CASES_ARE_FINE: bool = false;

    /// Puts work in, in the caller's transaction.
    async fn place(&self, ground: &mut Ground<DB>, work: RangeInclusive<i64>) -> Result<()>;

    /// How far the scene is, in steps of the bar, and a word about it.
    async fn progress(&self, ground: &mut Ground<DB>, kills: usize) -> Result<(i64, String)>;

    /// What is wrong so far, where the scene can tell while workers are running. Only a recorded run asks.
    async fn faults(&self, _ground: &mut Ground<DB>) -> Result<Option<Faults>> {
        Ok(None)
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
    /// Kills after the provider acted and before the worker knew.
    pub(crate) struck: usize,
    pub(crate) rest: Rest,
}

/// What was not over when the time was, and what was retired though nothing should be.
#[derive(Default)]
pub(crate) struct Rest {
    /// Jobs that can still run.
    jobs: i64,
    /// These jobs by kind and state, and work that was not placed.
    open: Vec<String>,
    retired: Vec<String>,
}

impl Rest {
    pub(crate) fn is_none(&self) -> bool {
        self.open.is_empty() && self.retired.is_empty()
    }

    /// As text; `None` when everything is over.
    pub(crate) fn text(&self) -> Option<String> {
        let parts: Vec<&str> = self.open.iter().chain(&self.retired).map(String::as_str).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Ran {
    /// What to say of a run that did not finish. A job that is open is neither lost nor done; what is broken already
    /// stays broken, and is reported instead.
    pub(crate) fn unfinished(&self, broken: bool) -> Option<String> {
        let Rest { jobs, open, retired } = &self.rest;
        if broken || open.is_empty() || !retired.is_empty() {
            return None;
        }
        let still = match jobs {
            1 => "1 job is still open".to_owned(),
            _ => format!("{jobs} jobs are still open"),
        };
        Some(report::unfinished(self.seconds, &still, &open.join(", ")))
    }
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
    tape: Tape,
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
            tape: show.tape.clone(),
            bar: bar(show, &size),
            size,
        }
    }

    /// Runs until everything is done, or until it is clear that it will not be. No worker runs after that.
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
            // Kill as many as announced, also when the work is over first.
            let one_to_die = matches!(next, Next::At(_) | Next::Aimed(_));
            if !one_to_die && self.placed == self.size.work && over(&self.ground.observe.status().await?) {
                break;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.show().await?;
        self.bar.finish_and_clear();
        // No worker may run during the count.
        self.crew.dismiss(Duration::from_secs(5)).await;
        let rest = self.rest().await?;
        Ok(Ran {
            seconds,
            kills: self.crew.kills,
            struck: self.struck,
            rest,
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

    /// Chooses the next kill, and places a wave of work so that the kill hits running jobs.
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
        if self.tape.is_on() {
            let faults = self.act.faults(self.ground).await?;
            self.tape.sample(done, faults);
        }
        Ok(done)
    }

    /// What is not finished.
    async fn rest(&self) -> Result<Rest> {
        let status = self.ground.observe.status().await?;
        let mut rest = Rest::default();
        for lane in &status.lanes {
            for (count, what) in [
                (lane.due, "due"),
                (lane.scheduled, "scheduled"),
                (lane.leased, "leased"),
            ] {
                if count > 0 {
                    rest.jobs += count;
                    rest.open.push(format!("{count} {} {what}", lane.kind));
                }
            }
            if lane.cases > 0 && !A::CASES_ARE_FINE {
                rest.retired.push(format!("{} {} retired", lane.cases, lane.kind));
            }
        }
        if self.placed < self.size.work {
            let left = self.size.work - self.placed;
            rest.open.push(format!("{left} {} not placed", self.size.unit));
        }
        Ok(rest)
    }
}

/// The next caller that the provider aims at. Pending for ever if there is no provider.
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

fn bar(show: &Show, size: &Size) -> ProgressBar {
    if show.quiet {
        return ProgressBar::hidden();
    }
    let kills = if size.kills > 0 { " and killing workers" } else { "" };
    show.step(&format!("placing {}{kills}", size.unit));
    show.clear_step();
    // Draws on stderr, and nothing at all if stderr is not a terminal.
    let bar = ProgressBar::new(u64::try_from(size.work * size.steps).unwrap_or_default());
    let template = format!(
        "  {{bar:{}.green/dim}} {{pos}}/{{len}} jobs · {{msg}} · {{elapsed}}",
        size.bar
    );
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("━━─"))
        .with_message("waiting for the first job")
}
