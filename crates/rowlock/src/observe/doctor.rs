//! A check-up: finds everything that stops jobs from running, or will, and suggests a fix for each problem.
//!
//! [`Observe::verify`] checks whether the invariants hold. This checks the surroundings: the server, its settings, the
//! workers, and what waits for a person.

use serde::{Serialize, Serializer};

use super::{CheckState, Invariant, LaneStatus, Observe, Status, VerifyLimits, WorkerStatus};
use crate::{breaker::BreakerState, effect::EffectFilter, error::Result, pause::Target};

/// How many rows of each table the quick check of the invariants reads.
const ROWS: i64 = 1000;
/// A queue and kind without a claim for this long counts as not served.
const UNSERVED_MS: i64 = 30_000;
/// At most this many of them are named.
const NAMED: usize = 5;
/// Effects in doubt are counted up to here.
const DOUBTS_MAX: u32 = 100;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Health {
    /// As it should be.
    Ok,
    /// Jobs still run, but they may stop.
    Warn,
    /// Jobs do not run, or invariants do not hold.
    Fail,
}

impl Health {
    /// The word on the screen.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Fail => "fail",
        }
    }
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

/// What one check of a check-up found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked.
    pub check: &'static str,
    /// How bad it is.
    pub health: Health,
    /// What was found.
    pub said: String,
    /// The command or statement that fixes the problem; none where there is nothing to fix.
    pub mend: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, said: impl Into<String>) -> Finding {
        Finding {
            check,
            health: Health::Ok,
            said: said.into(),
            mend: None,
        }
    }

    pub(crate) fn warn(check: &'static str, said: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            health: Health::Warn,
            mend: Some(mend.into()),
            ..Finding::ok(check, said)
        }
    }

    pub(crate) fn fail(check: &'static str, said: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            health: Health::Fail,
            ..Finding::warn(check, said, mend)
        }
    }
}

impl Observe {
    /// Checks everything that can stop jobs from running. It only reads; it counts jobs once, as [`Observe::status`]
    /// does.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database). Check first that the schema fits. Cancel-safe.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        let status = self.status().await?;
        let live = status.workers.iter().filter(|w| is_live(w));
        let lease_ms = live.map(|worker| worker.lease_ms).min();
        let mut findings = self.store.vitals(lease_ms).await?;
        let due: i64 = status.lanes.iter().map(|lane| lane.due).sum();
        findings.push(workers(&status.workers, due));
        findings.extend(self.unserved(&status).await?);
        findings.push(self.rules().await?);
        findings.push(self.stopped().await?);
        findings.push(self.breakers_open().await?);
        let cases: i64 = status.lanes.iter().map(|lane| lane.cases).sum();
        findings.push(match cases {
            0 => Finding::ok("cases", "none is open"),
            1 => Finding::warn("cases", "1 waits for somebody to decide", "rowlock cases"),
            _ => Finding::warn("cases", format!("{cases} wait for somebody to decide"), "rowlock cases"),
        });
        findings.push(self.doubts().await?);
        Ok(findings)
    }

    /// Jobs that are due and stay due while workers run, without a pause that explains it. Reports nothing when all is
    /// well, and when no worker runs at all.
    async fn unserved(&self, status: &Status) -> Result<Option<Finding>> {
        if !status.workers.iter().any(is_live) {
            return Ok(None);
        }
        let paused: Vec<Target> = self.pauses().await?.into_iter().map(|pause| pause.target).collect();
        let is_paused = |lane: &LaneStatus| {
            paused.iter().any(|target| match target {
                Target::Queue(name) => *name == lane.queue,
                Target::Kind(name) => *name == lane.kind,
                Target::Group(_) => false,
            })
        };
        let idle = status.lanes.iter().filter(|lane| is_idle(lane) && !is_paused(lane));
        let names: Vec<String> = idle.map(|lane| format!("{} in {}", lane.kind, lane.queue)).collect();
        let more = names.len().saturating_sub(NAMED);
        let rest = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let first = names
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        Ok((!names.is_empty()).then(|| {
            Finding::warn(
                "claims",
                format!(
                    "due for more than {} s, and nobody takes it: {first}{rest}",
                    UNSERVED_MS / 1000
                ),
                "start a worker that serves that queue and knows that kind and version, unless a breaker holds it",
            )
        }))
    }

    async fn rules(&self) -> Result<Finding> {
        let limits = VerifyLimits::new().rows(ROWS);
        let seen = self.verify(&limits).await?;
        let of = |state| -> Vec<&str> {
            let checks = seen.checks.iter().filter(|check| check.state == state);
            checks.map(|check| check.invariant.as_str()).collect()
        };
        let (broken, late) = (of(CheckState::Broken), of(CheckState::Late));
        let drifted = [Invariant::Schema, Invariant::Indexes].map(Invariant::as_str);
        Ok(match (broken.is_empty(), late.is_empty()) {
            (true, true) => Finding::ok("rules", format!("all hold in the newest {ROWS} rows of each table")),
            (true, false) => Finding::warn(
                "rules",
                format!("late: {}", late.join(", ")),
                "see that a worker runs, then rowlock verify",
            ),
            (false, _) if broken.iter().all(|name| drifted.contains(name)) => Finding::fail(
                "rules",
                format!("the schema is not as it was made: {}", broken.join(", ")),
                "rowlock verify   says what is missing; make it again as rowlock migrate --sql has it",
            ),
            (false, _) => Finding::fail("rules", format!("broken: {}", broken.join(", ")), "rowlock verify"),
        })
    }

    async fn stopped(&self) -> Result<Finding> {
        let paused = self.pauses().await?;
        let names: Vec<String> = paused.iter().map(|pause| pause.target.to_string()).collect();
        Ok(match names.is_empty() {
            true => Finding::ok("pauses", "nothing is paused"),
            false => Finding::warn(
                "pauses",
                format!("paused by hand: {}", names.join(", ")),
                "rowlock pause   lists who did it and when; rowlock resume lets it go on",
            ),
        })
    }

    async fn breakers_open(&self) -> Result<Finding> {
        let breakers = self.breakers().await?;
        let open = breakers.iter().filter(|breaker| breaker.state != BreakerState::Closed);
        let names: Vec<String> = open.map(|b| format!("{} is {}", b.name, b.state.as_str())).collect();
        Ok(match names.is_empty() {
            true => Finding::ok("breakers", "none is open"),
            false => Finding::warn(
                "breakers",
                names.join(", "),
                "rowlock breaker   shows why, and moves one by hand",
            ),
        })
    }

    async fn doubts(&self) -> Result<Finding> {
        let doubtful = EffectFilter::new().doubtful().limit(DOUBTS_MAX);
        let doubts = self.effects(&doubtful).await?.len();
        let full = u32::try_from(doubts).is_ok_and(|doubts| doubts >= DOUBTS_MAX);
        let calls = match doubts {
            0 => return Ok(Finding::ok("effects", "none is in doubt")),
            1 => "1 outside call".to_owned(),
            _ if full => format!("{doubts} outside calls or more"),
            _ => format!("{doubts} outside calls"),
        };
        let said = format!("{calls} may or may not have happened");
        Ok(Finding::warn("effects", said, "rowlock effects"))
    }
}

fn is_idle(lane: &LaneStatus) -> bool {
    lane.due > 0 && lane.leased == 0 && lane.oldest_due_ms.is_some_and(|ms| ms > UNSERVED_MS)
}

fn is_live(worker: &WorkerStatus) -> bool {
    !worker.dead && worker.beat_age_ms <= worker.lease_ms
}

fn workers(workers: &[WorkerStatus], due: i64) -> Finding {
    let live = workers.iter().filter(|worker| is_live(worker)).count();
    let silent: Vec<&str> = workers
        .iter()
        .filter(|w| !is_live(w))
        .map(|w| w.name.as_str())
        .collect();
    let jobs = if due == 1 { "job" } else { "jobs" };
    let said = format!("{live} at work, {due} {jobs} due");
    let start = "start a worker: run your program, or `rowlock work`";
    match (live, silent.is_empty()) {
        (0, _) if due > 0 => Finding::fail("workers", said, start),
        (0, true) => Finding::warn("workers", said, start),
        (_, true) => Finding::ok("workers", said),
        (_, false) => Finding::warn(
            "workers",
            format!("{said}; silent for longer than their lease: {}", silent.join(", ")),
            "rowlock status   shows whether others end their leases, which takes seconds while one is at work",
        ),
    }
}
