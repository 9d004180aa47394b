//! What really happened, as the database, the tills, the rowers and the injector wrote it down. Plain data: the checker
//! reads nothing else, and its own tests make bad ones by hand.

use std::collections::HashMap;

use rowlock::Ended;

use super::orders::Workload;
use crate::till;

/// A whole run.
#[derive(Debug, Default)]
pub struct History {
    /// What was run.
    pub workloads: Vec<Workload>,
    /// Every job, by id.
    pub jobs: Vec<JobRow>,
    /// Every ended attempt, by job and epoch.
    pub outcomes: Vec<OutcomeRow>,
    /// Every effect in the database, by job.
    pub ledger: Vec<LedgerRow>,
    /// Orders with their jobs: the producers' business rows.
    pub purchases: Vec<(i64, i64)>,
    /// What was decided under a guard: the thing, what was seen of it, the job.
    pub decisions: Vec<(i64, i64, i64)>,
    /// What each account has, from the first on.
    pub balances: Vec<i64>,
    /// The journal of external calls.
    pub effects: Vec<EffectRow>,
    /// Every move of the breaker, in order.
    pub line: Vec<BreakerMove>,
    /// Jobs that a person reopened.
    pub reopened: Vec<i64>,
    /// What people did to single jobs, as the audit says.
    pub deeds: Vec<(i64, String)>,
    /// Whether rows carry the transaction that wrote them.
    pub has_xids: bool,
    /// What the till that knows keys did.
    pub till: till::Log,
    /// What the till that does not know keys did.
    pub blind_till: till::Log,
    /// What the processes wrote down.
    pub rowers: Vec<RowerLog>,
    /// What was done to the system.
    pub faults: Faults,
    /// How the system stood when it had come to rest.
    pub rest: Rest,
    /// The workers' lease.
    pub lease_ms: i64,
}

/// The place of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `ready`.
    Ready,
    /// In `waiting`.
    Waiting,
    /// In `lease`.
    Leased,
    /// In `case_file`.
    Case,
    /// In none.
    Nowhere,
    /// In several, which must not be.
    Several,
}

/// A job.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// Its id.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its payload.
    pub payload: serde_json::Value,
    /// How many attempts it has.
    pub attempts_max: i32,
    /// The first link of its chain.
    pub chain: Option<i64>,
    /// Its place.
    pub place: Place,
    /// The transaction that enqueued it.
    pub xid: i64,
    /// The group it is in.
    pub group: Option<String>,
    /// When it was enqueued, on the database's clock.
    pub created_ms: i64,
    /// When everybody could see it.
    pub committed_ms: i64,
}

/// An ended attempt.
#[derive(Clone, Debug)]
pub struct OutcomeRow {
    /// The job.
    pub id: i64,
    /// Which lease of it.
    pub epoch: i64,
    /// Whose.
    pub worker: i64,
    /// Which attempt.
    pub attempt: i32,
    /// How it ended.
    pub ended: Ended,
    /// When it was claimed, on the database's clock.
    pub started_ms: i64,
    /// When it ended.
    pub ended_ms: i64,
    /// The transaction that wrote it.
    pub xid: i64,
    /// What went wrong.
    pub error: Option<String>,
}

/// A move of a breaker.
#[derive(Clone, Debug)]
pub struct BreakerMove {
    /// Which.
    pub version: i64,
    /// To which state.
    pub to: String,
    /// When it was decided, under the lock of its row.
    pub at_ms: i64,
    /// When everybody could see it.
    pub committed_ms: i64,
}

/// An effect in the database.
#[derive(Clone, Debug)]
pub struct LedgerRow {
    /// The job.
    pub job: i64,
    /// The lease under which it was written.
    pub epoch: i64,
    /// The order, or the slot of a key.
    pub purchase: i64,
    /// What the handler had to say.
    pub note: String,
    /// The transaction that wrote it.
    pub xid: i64,
}

/// An external call as the journal has it.
#[derive(Clone, Debug)]
pub struct EffectRow {
    /// The job.
    pub job: i64,
    /// `open`, `uncertain`, `replied` or `undone`.
    pub state: String,
}

/// What one process wrote down.
#[derive(Clone, Debug, Default)]
pub struct RowerLog {
    /// Which.
    pub name: String,
    /// Its clock was wrong; the times here are right.
    pub skewed: bool,
    /// It reached the database through a pooler.
    pub pooled: bool,
    /// When it was gone, if it is.
    pub gone_ms: Option<i64>,
    /// When it stood still.
    pub frozen: Vec<(i64, i64)>,
    /// When each of its handlers started and ended: the job, its epoch, from, to.
    pub runs: Vec<Run>,
    /// Attempts that it heard are done: job and epoch.
    pub done: Vec<(i64, i64)>,
    /// Attempts that it heard have lost their lease.
    pub lost: Vec<(i64, i64)>,
    /// Commits whose fate was looked up for it, with the answer.
    pub resolved: Vec<(i64, i64, bool)>,
    /// Orders it was about to commit.
    pub tried: Vec<i64>,
    /// Orders whose commit came back, with their jobs.
    pub confirmed: Vec<(i64, i64)>,
    /// Orders it rolled back.
    pub rolled_back: Vec<i64>,
    /// Enqueues under a shared key that came back: the slot, and the job.
    pub keyed: Vec<(i64, i64)>,
    /// What went wrong on purpose in its handlers, and anything else worth a count.
    pub counts: HashMap<String, usize>,
}

impl RowerLog {
    /// Takes this much off every time that the process wrote down itself.
    pub fn set_clock_back(&mut self, ms: i64) {
        for run in &mut self.runs {
            run.from -= ms;
            run.to = run.to.map(|to| to - ms);
        }
    }
}

/// One run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The job.
    pub id: i64,
    /// Which lease of it.
    pub epoch: i64,
    /// When it started, on its process's clock.
    pub from: i64,
    /// When it was over; `None` when its process did not live to say so.
    pub to: Option<i64>,
}

/// What the injector did.
#[derive(Debug, Default)]
pub struct Faults {
    /// How often each kind.
    pub counts: std::collections::BTreeMap<String, usize>,
    /// Kinds that this run had to have.
    pub wanted: Vec<String>,
    /// Kinds that could not be had here, and why.
    pub missing: Vec<String>,
    /// Processes killed: which, when.
    pub deaths: Vec<(String, i64)>,
    /// When the whole database, or the way to it, was disturbed: from, to.
    pub outages: Vec<(i64, i64)>,
    /// When a server that had been stopped accepted connections again.
    pub restarts: Vec<i64>,
    /// Processes that ended although nobody had ended them.
    pub unexplained: Vec<String>,
    /// Commits that were cut off, and had happened.
    pub cut_committed: usize,
    /// Commits that were cut off, and had not happened.
    pub cut_not_committed: usize,
    /// Commits that were cut off, with an unknown end.
    pub cut_unknown: usize,
    /// From a stop signal to the process's end, where nothing else disturbed it.
    pub hand_backs_ms: Vec<i64>,
}

/// How the system stood at the end.
#[derive(Debug, Default)]
pub struct Rest {
    /// It came to rest in time; else what was left.
    pub unrest: Option<String>,
    /// Sessions in an open transaction.
    pub idle_in_transaction: i64,
    /// Advisory locks held.
    pub advisory_locks: i64,
    /// What the database's own check of its files and indexes found.
    pub damage: Vec<String>,
    /// How many indexes or files it looked at.
    pub files_checked: usize,
    /// Whether a binary that is older than the schema left the schema alone; `None` when that was not tried.
    pub newer_schema_left_alone: Option<bool>,
}
