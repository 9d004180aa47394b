//! Reads only: where jobs are, who has them, how often they failed and why. Nothing here changes anything.

mod audit;
mod doctor;
mod filter;
mod standing;
mod verify;
mod wait;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

pub(crate) use self::verify::Seen;
pub use self::{
    audit::{AuditFilter, AuditView},
    doctor::{Finding, Health},
    filter::{CaseFilter, JobFilter},
    standing::{Standing, Untaken},
    verify::{Breach, CheckState, CheckView, Invariant, Verification, VerifyLimits},
    wait::{Awaited, Wait},
};
use crate::{
    breaker::{BreakerChange, BreakerView},
    effect::{EffectFilter, EffectView},
    error::Result,
    id::{EffectNo, JobId},
    lease::WorkerId,
    state::{Ended, State},
    store::{Store, cases::CaseQuery, journal::EffectQuery, setting, views::JobQuery},
};
pub use crate::{
    case::{CaseErrorView, CaseView},
    id::{AuditNo, ErrorNo},
    pause::PauseView,
};

/// One job as the `jobs` view shows it.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct JobView {
    /// The job's number in this database.
    pub id: JobId,
    /// The name that effect keys derive from.
    pub uid: Uuid,
    /// Which handler runs it.
    pub kind: String,
    /// The payload's version.
    pub version: i32,
    /// Its queue.
    pub queue: String,
    /// 1 runs first.
    pub priority: i16,
    /// Its state.
    #[serde(serialize_with = "state_word")]
    pub state: State,
    /// Attempts used, the running one included.
    pub attempt: i32,
    /// Attempts it may use.
    pub attempts_max: i32,
    /// How often it was claimed.
    pub epoch: i64,
    /// When it is due, if ready.
    pub due_at: Option<Timestamp>,
    /// The number of the worker that has it, if leased.
    pub worker: Option<WorkerId>,
    /// When it was claimed, if leased.
    pub claimed_at: Option<Timestamp>,
    /// How its last attempt ended.
    #[serde(serialize_with = "ended_word")]
    pub last_outcome: Option<Ended>,
    /// When.
    pub last_ended_at: Option<Timestamp>,
    /// The error of the last failure.
    pub last_error: Option<String>,
    /// What the handler returned, if done.
    pub result: Option<serde_json::Value>,
    /// The payload.
    pub payload: serde_json::Value,
    /// Its tags.
    pub tags: Vec<String>,
    /// The first job of its chain, if it is a later link.
    pub chain: Option<JobId>,
    /// Its place in the chain, from 0.
    pub position: i32,
    /// After this it is cancelled instead of run.
    pub expires_at: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The name it waits for, or waited for.
    pub waits_for: Option<String>,
    /// The group it is in.
    pub group: Option<String>,
    /// The caller's key, while this job holds it.
    pub key: Option<String>,
}

crate::debug::debug_fields!(
    [] JobView, "JobView",
    id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at,
    last_outcome, last_ended_at, last_error, tags, chain, position, expires_at, created_at, waits_for, group,
    key
);

fn state_word<S: serde::Serializer>(state: &State, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(state.as_str())
}

fn ended_word<S: serde::Serializer>(ended: &Option<Ended>, s: S) -> std::result::Result<S::Ok, S::Error> {
    ended.map(Ended::as_str).serialize(s)
}

/// One rollout as it was set last.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RolloutView {
    /// Its name.
    pub name: String,
    /// How many of a hundred keys take the new code path.
    pub percent: u8,
    /// Since when.
    pub changed_at: Timestamp,
    /// Who set it.
    pub changed_by: String,
}

/// One ended attempt, a row of the outcome log.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct AttemptView {
    /// Which claim.
    pub epoch: i64,
    /// Which attempt.
    pub attempt: i32,
    /// Who ran it.
    pub worker: WorkerId,
    /// How it ended.
    #[serde(serialize_with = "one_ended_word")]
    pub outcome: Ended,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Why it failed.
    pub error: Option<String>,
    /// What it returned.
    pub result: Option<serde_json::Value>,
}

crate::debug::debug_fields!(
    [] AttemptView, "AttemptView",
    epoch, attempt, worker, outcome, started_at, ended_at, error
);

fn one_ended_word<S: serde::Serializer>(ended: &Ended, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(ended.as_str())
}

/// Counts per queue and kind, and the workers.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// One row per queue and kind that has an open job.
    pub lanes: Vec<LaneStatus>,
    /// The worker processes known to the database.
    pub workers: Vec<WorkerStatus>,
}

/// The counts of one queue and kind.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LaneStatus {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    /// Due now.
    pub due: i64,
    /// Scheduled for later, retries included.
    pub scheduled: i64,
    /// Waiting for a name to be completed.
    pub waiting: i64,
    /// Leased by workers.
    pub leased: i64,
    /// Retired, open for a decision.
    pub cases: i64,
    /// There are more jobs than were counted: due and scheduled ones are counted to 100,000 for each priority of a
    /// queue and kind, the others to 100,000 in all.
    pub more: bool,
    /// How long the oldest due job has been waiting, in milliseconds.
    pub oldest_due_ms: Option<i64>,
}

/// One worker process.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Its random number.
    pub id: WorkerId,
    /// The name it gave itself.
    pub name: String,
    /// Its lease.
    pub lease_ms: i64,
    /// How long ago its last heartbeat was, in milliseconds.
    pub beat_age_ms: i64,
    /// Declared dead; its jobs are being recovered.
    pub dead: bool,
    /// How many leases it holds.
    pub leases: i64,
    /// When it started.
    pub started_at: Timestamp,
}

/// The commands that read, on either database. Cheap to clone.
#[derive(Clone)]
pub struct Observe {
    pub(crate) store: Arc<dyn Store>,
}

crate::debug::debug_fields!([] Observe, "Observe");

impl Observe {
    /// Counts per queue and kind, and the workers.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn status(&self) -> Result<Status> {
        self.store.status().await
    }

    /// Lists jobs, newest first.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobView>> {
        self.store.jobs(JobQuery::Filter(filter)).await
    }

    /// One job, or `None` when there is no such job or its retention is over.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn job(&self, id: impl Into<JobId>) -> Result<Option<JobView>> {
        self.store.job(id.into().0).await
    }

    /// A job's ended attempts, oldest first.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn attempts(&self, id: impl Into<JobId>) -> Result<Vec<AttemptView>> {
        self.store.attempts(id.into().0).await
    }

    /// Lists open cases, newest first.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn cases(&self, filter: &CaseFilter) -> Result<Vec<CaseView>> {
        let max = filter.limit.into();
        let query = match filter.error {
            None => CaseQuery::Newest { max },
            Some(error) => CaseQuery::Alike {
                error: error.into(),
                max,
            },
        };
        self.store.cases(query).await
    }

    /// The errors that open cases have in common, most cases first, at most this many. A case counts within seconds of
    /// its retirement, while a worker runs.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn case_errors(&self, limit: u32) -> Result<Vec<CaseErrorView>> {
        self.store.case_errors(limit.into()).await
    }

    /// One open case.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn case(&self, id: impl Into<JobId>) -> Result<Option<CaseView>> {
        self.store.case(id.into().0).await
    }

    /// Effects of staged handlers: of one job, or all; newest first, or only those in doubt, the oldest doubt first.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectView>> {
        self.store.effects(EffectQuery::Filter(filter)).await
    }

    /// One effect by its number.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn effect(&self, no: impl Into<EffectNo>) -> Result<Option<EffectView>> {
        self.store.effect(no.into().0).await
    }

    /// Every link of the chain that this job belongs to, first link first; a job without links is a chain of one.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn chain(&self, id: impl Into<JobId>) -> Result<Vec<JobView>> {
        self.store.jobs(JobQuery::Chain(id.into().0)).await
    }

    /// Every rollout that was ever set, by name; one that was never set is at 0.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn rollouts(&self) -> Result<Vec<RolloutView>> {
        setting::rollouts(&*self.store).await
    }

    /// Every queue and kind that is paused.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn pauses(&self) -> Result<Vec<PauseView>> {
        setting::pauses(&*self.store).await
    }

    /// Every breaker that workers were ever bound to, with its current state.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn breakers(&self) -> Result<Vec<BreakerView>> {
        self.store.breakers(None).await
    }

    /// The last changes of a breaker, newest first, at most this many; changes older than the history are gone.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn breaker_log(&self, name: &str, limit: u32) -> Result<Vec<BreakerChange>> {
        self.store.breaker_log(name, limit.into()).await
    }
}
