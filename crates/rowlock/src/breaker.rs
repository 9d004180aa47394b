//! A circuit breaker for a dependency that kinds are bound to: one row in the database for the whole fleet.
//!
//! Only this file decides how a breaker changes. A store reads the row under a lock, asks this file, and writes the
//! answer back only if the row still has the version that was read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, Result};

/// The shortest cooldown: workers read the breakers twice a second.
const COOLDOWN_MIN: Duration = Duration::from_secs(1);
const COOLDOWN_MAX: Duration = Duration::from_secs(24 * 3600);

/// When a dependency counts as down, and how it is tried again. `Breaker::after(5).cooldown(secs(30)).probes(2)`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// The breaker opens after this many failures in a row, counted over all workers.
    pub(crate) threshold: i32,
    #[serde(serialize_with = "as_ms", rename = "cooldown_ms")]
    pub(crate) cooldown: Duration,
    #[serde(serialize_with = "as_ms", rename = "cooldown_max_ms")]
    pub(crate) cooldown_max: Duration,
    #[serde(rename = "probes_max")]
    pub(crate) probes: i32,
}

fn as_ms<S: serde::Serializer>(time: &Duration, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl Breaker {
    /// Opens after this many failures in a row, counted over all workers (1 to 10,000). A success in between restarts
    /// the count. After the first cooldown of 30 s one probe is let through; see the other settings.
    pub fn after(failures: u32) -> Breaker {
        Breaker {
            threshold: i32::try_from(failures).unwrap_or(i32::MAX),
            cooldown: Duration::from_secs(30),
            cooldown_max: Duration::from_secs(600),
            probes: 1,
        }
    }

    /// How long the breaker stays open before it is probed (30 s unless set; 1 s to a day). Each failed probe doubles
    /// the cooldown, up to [`Breaker::cooldown_max`].
    pub fn cooldown(mut self, time: Duration) -> Breaker {
        self.cooldown = time;
        self.cooldown_max = self.cooldown_max.max(time);
        self
    }

    /// The longest cooldown (10 min unless set, and never less than the first).
    pub fn cooldown_max(mut self, time: Duration) -> Breaker {
        self.cooldown_max = time;
        self
    }

    /// How many jobs may probe at the same time after the cooldown, in the whole fleet (1 unless set; up to 1000).
    pub fn probes(mut self, jobs: u32) -> Breaker {
        self.probes = i32::try_from(jobs).unwrap_or(i32::MAX);
        self
    }

    /// As it is stored.
    pub(crate) fn stored(threshold: i32, cooldown_us: i64, cooldown_max_us: i64, probes: i32) -> Breaker {
        let time = |us: i64| Duration::from_micros(u64::try_from(us).unwrap_or(0));
        Breaker {
            threshold,
            cooldown: time(cooldown_us),
            cooldown_max: time(cooldown_max_us),
            probes,
        }
    }

    pub(crate) fn cooldown_us(&self) -> i64 {
        i64::try_from(self.cooldown.as_micros()).unwrap_or(i64::MAX)
    }

    pub(crate) fn cooldown_max_us(&self) -> i64 {
        i64::try_from(self.cooldown_max.as_micros()).unwrap_or(i64::MAX)
    }

    pub(crate) fn check(&self, name: &str) -> Result<()> {
        let problem = match self {
            Breaker { threshold, .. } if !(1..=10_000).contains(threshold) => {
                format!("after({threshold}) is out of range (1 to 10000)")
            }
            Breaker { cooldown, .. } if !(COOLDOWN_MIN..=COOLDOWN_MAX).contains(cooldown) => {
                format!("cooldown {cooldown:?} is out of range (1 s to 1 day)")
            }
            Breaker { cooldown_max, .. } if !(self.cooldown..=COOLDOWN_MAX).contains(cooldown_max) => {
                format!("longest cooldown {cooldown_max:?} is out of range (the first cooldown to 1 day)")
            }
            Breaker { probes, .. } if !(1..=1000).contains(probes) => {
                format!("probes({probes}) is out of range (1 to 1000)")
            }
            _ => return Ok(()),
        };
        Err(Error::Config(format!("breaker {name:?}: {problem}")))
    }

    /// The cooldown after the breaker opened this many times in a row.
    fn wait(&self, trips: i32) -> Duration {
        let doublings = u32::try_from(trips - 1).unwrap_or(0).min(20);
        self.cooldown.saturating_mul(1 << doublings).min(self.cooldown_max)
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakerState {
    /// Jobs are claimed.
    Closed,
    /// No job is claimed.
    Open,
    /// A few jobs are claimed, as probes.
    HalfOpen,
}

impl BreakerState {
    /// The word in the database and on the screen.
    pub fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }

    /// Reads the word in the database.
    pub fn parse(word: &str) -> Option<BreakerState> {
        let all = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

impl std::fmt::Display for BreakerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an operator sets a breaker to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Force {
    /// Open, whatever happens, until an operator changes it.
    Open,
    /// Closed, whatever fails, until an operator changes it.
    Closed,
    /// Automatic again: closed, with its count at zero.
    Auto,
}

impl Force {
    /// The word in the audit.
    pub fn as_str(self) -> &'static str {
        match self {
            Force::Open => "open",
            Force::Closed => "closed",
            Force::Auto => "auto",
        }
    }
}

/// A breaker as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BreakerView {
    /// The dependency.
    pub name: String,
    /// Its state.
    pub state: BreakerState,
    /// An operator set the state, and nothing else changes it.
    pub forced: bool,
    /// Failures in a row, while it is closed.
    pub failures: i32,
    /// How often in a row it opened without closing in between.
    pub trips: i32,
    /// Set when it opened by itself: from this time on a probe may be claimed.
    pub open_until: Option<Timestamp>,
    /// Probes under way.
    pub probing: i32,
    /// The policy that its workers stored last.
    #[serde(flatten)]
    pub policy: Breaker,
    /// Raised with every change of state.
    pub version: i64,
    /// Since when it has this state.
    pub changed_at: Timestamp,
    /// The worker whose attempt changed the state, or the operator who did.
    pub changed_by: String,
    /// The failure that opened it.
    pub reason: Option<String>,
    /// Whether a probe may be claimed now, unless enough are under way.
    #[serde(skip)]
    pub(crate) due: bool,
}

/// One change of a breaker's state.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BreakerChange {
    /// The version it had then.
    pub version: i64,
    /// From where.
    pub from: BreakerState,
    /// To where.
    pub to: BreakerState,
    /// Whether a person did it.
    pub forced: bool,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// What attempts report about a dependency, combined: whether one of them succeeded, and how many have failed since.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub name: String,
    /// The breaker's version when the attempts were claimed. A note for another version does not count.
    pub version: i64,
    pub good: bool,
    pub failures: i32,
    /// What the last one failed with.
    pub error: Option<String>,
    /// The attempt was a probe.
    pub probe: bool,
    /// The worker's name.
    pub by: String,
}

impl BreakerView {
    /// The breaker after a note, if the note changes anything.
    pub(crate) fn noted(&self, note: &Note, now: Timestamp) -> Option<BreakerView> {
        if self.forced || note.version != self.version {
            return None;
        }
        match self.state {
            BreakerState::Closed => {
                let before = if note.good { 0 } else { self.failures };
                let failures = before.saturating_add(note.failures);
                if failures >= self.policy.threshold && note.failures > 0 {
                    return Some(self.opened(note, now));
                }
                (failures != self.failures).then(|| BreakerView {
                    failures,
                    ..self.clone()
                })
            }
            BreakerState::HalfOpen if note.probe && note.failures > 0 => Some(self.opened(note, now)),
            BreakerState::HalfOpen if note.probe && note.good => Some(BreakerView {
                trips: 0,
                ..self.moved(BreakerState::Closed, &note.by, now)
            }),
            BreakerState::HalfOpen | BreakerState::Open => None,
        }
    }

    fn opened(&self, note: &Note, now: Timestamp) -> BreakerView {
        let trips = self.trips.saturating_add(1);
        BreakerView {
            trips,
            failures: self.failures.saturating_add(note.failures),
            // The wait is a day at most, so this cannot reach the year 9999.
            open_until: now.checked_add(self.policy.wait(trips)).ok(),
            reason: note.error.clone(),
            ..self.moved(BreakerState::Open, &note.by, now)
        }
    }

    /// The breaker when its cooldown is over and a worker wants to probe.
    pub(crate) fn probed(&self, by: &str, now: Timestamp) -> Option<BreakerView> {
        let over = self.open_until.is_some_and(|until| until <= now);
        (self.state == BreakerState::Open && !self.forced && over).then(|| BreakerView {
            reason: self.reason.clone(),
            ..self.moved(BreakerState::HalfOpen, by, now)
        })
    }

    /// The breaker after an operator set it; `None` when nothing changes.
    pub(crate) fn forced(&self, force: Force, by: &str, now: Timestamp) -> Option<BreakerView> {
        let (to, forced) = match force {
            Force::Open => (BreakerState::Open, true),
            Force::Closed => (BreakerState::Closed, true),
            Force::Auto if !self.forced => return None,
            Force::Auto => (BreakerState::Closed, false),
        };
        (self.forced != forced || self.state != to).then(|| BreakerView {
            forced,
            trips: 0,
            ..self.moved(to, by, now)
        })
    }

    fn moved(&self, to: BreakerState, by: &str, now: Timestamp) -> BreakerView {
        BreakerView {
            state: to,
            failures: 0,
            open_until: None,
            version: self.version + 1,
            changed_at: now,
            changed_by: by.to_owned(),
            reason: None,
            ..self.clone()
        }
    }
}

/// Which breakers one claim of probes may try, and with how many jobs.
#[doc(hidden)]
#[derive(Debug)]
pub struct Trying {
    /// Each breaker that is half-open, with its version.
    pub tried: Vec<(String, i64)>,
    room: i32,
}

impl Trying {
    pub(crate) fn new(alone: bool) -> Trying {
        Trying {
            tried: Vec::new(),
            room: if alone { 1 } else { i32::MAX },
        }
    }

    /// Adds a half-open breaker, with this many probes under way.
    pub(crate) fn add(&mut self, breaker: &BreakerView, probing: i32) {
        self.room = self.room.min(breaker.policy.probes.saturating_sub(probing));
        self.tried.push((breaker.name.clone(), breaker.version));
    }

    /// How many more jobs may probe, when this many already do.
    pub(crate) fn left(&self, jobs: usize) -> i32 {
        let jobs = i32::try_from(jobs).unwrap_or(i32::MAX);
        self.room.saturating_sub(jobs).max(0)
    }
}

/// What a worker knows of the breakers that its kinds are bound to.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownBreakers(Arc<Mutex<HashMap<String, Standing>>>);

/// A breaker as it was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: BreakerState,
    pub(crate) version: i64,
    failures: i32,
    due: bool,
    /// There was a success that was not reported, because there was no failure to reset.
    good: bool,
}

impl KnownBreakers {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything changed that matters to a claimer.
    pub(crate) fn set(&self, views: &[BreakerView]) -> bool {
        let mut map = self.map();
        let mut changed = false;
        for view in views {
            let before = map.get(&view.name).copied();
            let now = Standing {
                state: view.state,
                version: view.version,
                failures: view.failures,
                due: view.due,
                // The remembered success is older than the count that was read.
                good: false,
            };
            changed |= before.is_none_or(|before| (before.version, before.due) != (now.version, now.due));
            map.insert(view.name.clone(), now);
        }
        changed
    }

    pub(crate) fn of(&self, name: &str) -> Option<Standing> {
        self.map().get(name).copied()
    }

    /// Whether all of these are closed, as far as is known.
    pub(crate) fn admit(&self, names: &[String]) -> bool {
        names.is_empty() || {
            let map = self.map();
            let closed = |name: &String| map.get(name).is_some_and(|b| b.state == BreakerState::Closed);
            names.iter().all(closed)
        }
    }

    /// The breakers among these that are not closed, in order, if all of them may be probed now.
    pub(crate) fn to_try(&self, names: &[String]) -> Option<Vec<String>> {
        let map = self.map();
        let mut to_try = Vec::new();
        for name in names {
            let standing = map.get(name)?;
            if standing.state != BreakerState::Closed {
                standing.due.then(|| to_try.push(name.clone()))?;
            }
        }
        to_try.sort_unstable();
        Some(to_try)
    }

    /// Whether any may be probed now.
    pub(crate) fn any_due(&self) -> bool {
        self.map().values().any(|standing| standing.due)
    }

    /// Remembers a success while nothing had failed; it is reported with the next failure. `false`: report it now.
    pub(crate) fn keep_good(&self, name: &str, version: i64) -> bool {
        match self.map().get_mut(name) {
            Some(known) if known.version == version && known.failures == 0 => {
                known.good = true;
                true
            }
            _ => false,
        }
    }

    /// Takes the remembered success.
    pub(crate) fn take_good(&self, name: &str, version: i64) -> bool {
        match self.map().get_mut(name) {
            Some(known) if known.version == version => std::mem::take(&mut known.good),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
