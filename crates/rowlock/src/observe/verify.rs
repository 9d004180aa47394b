//! An audit of the invariants on a live database: what must hold in every snapshot, whatever runs meanwhile.
//!
//! Each invariant is one statement that reads the newest rows, up to a limit, in one read-only transaction for all of
//! them. Where retention may have removed the evidence, nothing is judged: a healthy database never alarms.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::Observe;
use crate::{
    error::{Error, Result},
    id::JobId,
};

/// What must hold at every moment. The last two must hold in good time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// Every migration up to the newest one has run.
    Schema,
    /// The indexes exist, and those that decide races are unique and valid.
    Indexes,
    /// A job is in one place at most.
    Places,
    /// A job that is in a place has its body.
    Bodies,
    /// No two jobs share a uid.
    Uids,
    /// Every ended attempt has one outcome, and only one.
    Outcomes,
    /// Attempts are counted unless they are given back, and never go past the maximum.
    Attempts,
    /// Nothing follows the end of a job, except a case that was reopened and a finished job that was re-run.
    Endings,
    /// A job is where its last outcome put it, with the epoch of that outcome.
    Stands,
    /// A job that is in no place is done or cancelled.
    Finished,
    /// A lease has its worker's row.
    Owners,
    /// An effect belongs to a job and has the key that its job gives it. It has a reply exactly if it is replied.
    Effects,
    /// An enqueue key names a job that was enqueued, and each job has one at most.
    Keys,
    /// Entries of the ledger end when they are held for a period, and no others do.
    Ledger,
    /// Leases of silent workers are ended within twice their lease and a minute.
    Leases,
    /// Waits that are over are ended within a quarter of an hour.
    Waits,
    /// A job of a group that may run is the one whose turn it is, and the jobs behind it have a job to wait for.
    Groups,
}

impl Invariant {
    /// Every invariant, in the order in which they are checked.
    pub const ALL: [Invariant; 17] = [
        Invariant::Schema,
        Invariant::Indexes,
        Invariant::Places,
        Invariant::Bodies,
        Invariant::Uids,
        Invariant::Outcomes,
        Invariant::Attempts,
        Invariant::Endings,
        Invariant::Stands,
        Invariant::Finished,
        Invariant::Owners,
        Invariant::Effects,
        Invariant::Keys,
        Invariant::Ledger,
        Invariant::Leases,
        Invariant::Waits,
        Invariant::Groups,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::Schema => "schema",
            Invariant::Indexes => "indexes",
            Invariant::Places => "places",
            Invariant::Bodies => "bodies",
            Invariant::Uids => "uids",
            Invariant::Outcomes => "outcomes",
            Invariant::Attempts => "attempts",
            Invariant::Endings => "endings",
            Invariant::Stands => "stands",
            Invariant::Finished => "finished",
            Invariant::Owners => "owners",
            Invariant::Effects => "effects",
            Invariant::Keys => "keys",
            Invariant::Ledger => "ledger",
            Invariant::Leases => "leases",
            Invariant::Waits => "waits",
            Invariant::Groups => "groups",
        }
    }

    /// The invariant in one sentence.
    pub fn claim(self) -> &'static str {
        match self {
            Invariant::Schema => "every migration up to the newest one has run",
            Invariant::Indexes => "the indexes are there, and those that decide races unique",
            Invariant::Places => "a job stands in one place at most",
            Invariant::Bodies => "a job that stands somewhere has its body",
            Invariant::Uids => "no two jobs share a uid",
            Invariant::Outcomes => "every ended attempt has one outcome, and only one",
            Invariant::Attempts => "attempts are counted, and never go past the maximum",
            Invariant::Endings => "nothing follows the end of a job, unless it was reopened or re-run",
            Invariant::Stands => "a job stands where its last outcome led",
            Invariant::Finished => "a job that stands nowhere is done or cancelled",
            Invariant::Owners => "a lease has its worker",
            Invariant::Effects => "an effect has its job, its key, and a reply if it is replied",
            Invariant::Keys => "a key names a job that was enqueued, and a job has one at most",
            Invariant::Ledger => "an entry of the ledger ends exactly if it is held for a period",
            Invariant::Leases => "leases of silent workers are ended in time",
            Invariant::Waits => "waits that are over are ended in time",
            Invariant::Groups => "one job of a group may run, and its turn is passed on in time",
        }
    }

    /// Whether slowness alone, or the lack of a worker, can break it for a while.
    pub fn is_a_matter_of_time(self) -> bool {
        matches!(self, Invariant::Leases | Invariant::Waits)
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

/// How much a verification may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyLimits {
    pub(crate) rows: i64,
    pub(crate) time: Duration,
    pub(crate) shown: i64,
}

impl Default for VerifyLimits {
    fn default() -> Self {
        VerifyLimits::new()
    }
}

impl VerifyLimits {
    /// 100,000 rows and 10 s for each check, and 5 breaches of each.
    pub const fn new() -> VerifyLimits {
        VerifyLimits {
            rows: 100_000,
            time: Duration::from_secs(10),
            shown: 5,
        }
    }

    /// How many rows of a table each check reads, the newest first: at most ten million.
    pub const fn rows(mut self, rows: i64) -> VerifyLimits {
        self.rows = rows;
        self
    }

    /// How long each check may take: at most an hour.
    pub const fn time(mut self, time: Duration) -> VerifyLimits {
        self.time = time;
        self
    }

    /// How many breaches of each check are shown: at most 1,000.
    pub const fn shown(mut self, breaches: i64) -> VerifyLimits {
        self.shown = breaches;
        self
    }

    fn check(&self) -> Result<()> {
        const ROWS_MAX: i64 = 10_000_000;
        const SHOWN_MAX: i64 = 1000;
        if !(1..=ROWS_MAX).contains(&self.rows) {
            return Err(Error::invalid(
                "rows",
                format!("{} is out of range (1 to {ROWS_MAX})", self.rows),
            ));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&self.time) {
            return Err(Error::invalid(
                "time",
                format!("{:?} is out of range (1 ms to 1 h)", self.time),
            ));
        }
        if !(0..=SHOWN_MAX).contains(&self.shown) {
            return Err(Error::invalid(
                "shown",
                format!("{} is out of range (0 to {SHOWN_MAX})", self.shown),
            ));
        }
        Ok(())
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckState {
    /// It holds in everything that was read.
    Holds,
    /// It does not.
    Broken,
    /// Workers have not done something in time; check again in a minute.
    Late,
    /// The check ran out of time and proves nothing.
    NotFinished,
}

/// One breach of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Breach {
    /// The job, if the breach concerns one.
    pub job: Option<JobId>,
    /// What is wrong with it.
    pub what: String,
}

/// One invariant and the result of its check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CheckView {
    /// Which.
    #[serde(rename = "check")]
    pub invariant: Invariant,
    /// The invariant in one sentence.
    pub claim: &'static str,
    /// The result.
    pub state: CheckState,
    /// How many rows were read.
    pub looked: i64,
    /// Whether these were all there are.
    pub whole: bool,
    /// How many breaches there are among them.
    pub broken: i64,
    /// The first of them, by job.
    pub breaches: Vec<Breach>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

impl CheckView {
    /// The result of a statement.
    pub(crate) fn seen(invariant: Invariant, seen: Seen, took: Duration) -> CheckView {
        let state = match (seen.broken, invariant.is_a_matter_of_time()) {
            (0, _) => CheckState::Holds,
            (_, false) => CheckState::Broken,
            (_, true) => CheckState::Late,
        };
        CheckView {
            state,
            looked: seen.looked,
            whole: seen.whole,
            broken: seen.broken,
            breaches: seen.breaches,
            ..CheckView::unfinished(invariant, took)
        }
    }

    /// It was stopped.
    pub(crate) fn unfinished(invariant: Invariant, took: Duration) -> CheckView {
        CheckView {
            invariant,
            claim: invariant.claim(),
            state: CheckState::NotFinished,
            looked: 0,
            whole: false,
            broken: 0,
            breaches: Vec::new(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// What one statement answers.
#[derive(Debug)]
pub struct Seen {
    pub looked: i64,
    pub whole: bool,
    pub broken: i64,
    pub breaches: Vec<Breach>,
}

/// Every invariant, as one snapshot of the database shows them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// One for each of [`Invariant::ALL`], in that order.
    pub checks: Vec<CheckView>,
}

impl Verification {
    /// Whether every check was finished and holds in what it read.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.state == CheckState::Holds)
    }

    /// The checks with this result.
    pub fn that(&self, state: CheckState) -> impl Iterator<Item = &CheckView> {
        self.checks.iter().filter(move |check| check.state == state)
    }
}

impl Observe {
    /// Checks whether the invariants hold, in one read-only snapshot, each at a bounded cost. Workers and producers go
    /// on meanwhile: nothing waits for the checks, and they take only the locks of a read.
    ///
    /// A check reads the newest rows first; [`CheckView::whole`] says whether it read them all. A check that runs out
    /// of time is [`CheckState::NotFinished`], and the others go on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a limit is out of bounds; [`Error::Database`] when the database could not be read. A
    /// broken invariant is not an error but part of the answer. Cancel-safe.
    ///
    /// ```
    /// use rowlock::{observe::VerifyLimits, sqlite::Rowlock};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    /// let rowlock = Rowlock::open(&url)?;
    /// rowlock.migrate().await?;
    /// let verification = rowlock.observe().verify(&VerifyLimits::default()).await?;
    /// assert!(verification.holds());
    /// # Ok(()) })
    /// # }
    /// ```
    pub async fn verify(&self, limits: &VerifyLimits) -> Result<Verification> {
        limits.check()?;
        Ok(Verification {
            checks: self.store.verify(*limits).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = Invariant::ALL.iter().map(|i| i.as_str()).collect();
        assert_eq!(names.len(), Invariant::ALL.len());
    }

    #[test]
    fn limits_out_of_bounds_are_refused_by_name() {
        let said = |limits: VerifyLimits| limits.check().map_err(|e| e.to_string());
        let usual = VerifyLimits::default();
        assert_eq!(said(usual), Ok(()));
        let none = said(VerifyLimits { rows: 0, ..usual });
        assert_eq!(none, Err("rows: 0 is out of range (1 to 10000000)".into()));
        let time = Duration::from_secs(3601);
        let long = said(VerifyLimits { time, ..usual });
        assert_eq!(long, Err("time: 3601s is out of range (1 ms to 1 h)".into()));
        let many = said(VerifyLimits { shown: 1001, ..usual });
        assert_eq!(many, Err("shown: 1001 is out of range (0 to 1000)".into()));
    }

    #[test]
    fn a_check_that_did_not_finish_does_not_hold() {
        let seen = |invariant, broken| {
            let (looked, whole, breaches) = (1, true, Vec::new());
            let seen = Seen {
                looked,
                whole,
                broken,
                breaches,
            };
            CheckView::seen(invariant, seen, Duration::ZERO)
        };
        let of = |check| Verification { checks: vec![check] };
        assert!(of(seen(Invariant::Places, 0)).holds());
        assert_eq!(seen(Invariant::Places, 1).state, CheckState::Broken);
        assert_eq!(seen(Invariant::Leases, 1).state, CheckState::Late);
        assert!(!of(seen(Invariant::Leases, 1)).holds());
        assert!(!of(CheckView::unfinished(Invariant::Places, Duration::ZERO)).holds());
    }
}
