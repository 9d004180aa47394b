//! Trigger jobs: a hint from outside, such as a pointer in an SQS queue, makes untriggered jobs due now.
//!
//! The hint may come twice, late, out of order, or for a job of another database; the row alone decides. A trigger is
//! not an operator command, so the audit does not record it.

use uuid::Uuid;

use crate::{
    error::{Error, Result},
    id::JobId,
    job::{queue_no, untriggered},
    observe::Standing,
    root::{Backend, Rowlock},
    state::State,
    store::{
        Store,
        triggers::{Pulled, StandingQuery},
    },
};

/// How many pointers one call takes.
const POINTERS_MAX: usize = 1000;

/// How often to follow a job that was moved from waiting to ready in the meantime.
const ROUNDS: usize = 5;

/// What a pointer did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Triggered {
    /// The job was untriggered and is due now: in ready, or in waiting for its turn or a name. The epoch is the one
    /// before, or the attempt's epoch if a worker has already taken the job.
    Now(Standing),
    /// It was triggered before, or did not need a trigger: it is ready, waits, or a worker has it. Nothing was changed.
    Already(Standing),
    /// It is finished or a case. Nothing was changed.
    Over(Standing),
    /// There is a job with this number, but another one is meant: the pointer is from another database, or from this
    /// one before it was restored.
    Foreign,
    /// There is no job with this number, or its retention is over.
    Unknown,
}

impl<DB: Backend> Rowlock<DB> {
    /// Makes untriggered jobs that were enqueued with `on_trigger` due now, and notifies the workers. Returns a result
    /// for each pointer, a job's number and uid, in the order given. Repeats change nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 1,000 pointers; [`Error::TryAgain`] or [`Error::Conflict`] when another
    /// transaction was in the way; [`Error::Database`] otherwise. After an error any of them may have been triggered;
    /// trigger them again.
    ///
    /// Cancel safety: dropped half-way, any of them may have been triggered; trigger them again.
    pub async fn trigger(&self, pointers: &[(JobId, Uuid)]) -> Result<Vec<Triggered>> {
        trigger(self.store(), pointers).await
    }
}

pub(crate) async fn trigger(store: &dyn Store, pointers: &[(JobId, Uuid)]) -> Result<Vec<Triggered>> {
    if pointers.len() > POINTERS_MAX {
        let problem = format!("{} given, at most {POINTERS_MAX} per call", pointers.len());
        return Err(Error::invalid("pointers", problem));
    }
    if pointers.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = pointers.iter().map(|(id, _)| id.0).collect();
    let rows: Vec<(i64, Uuid)> = pointers.iter().map(|(id, uid)| (id.0, *uid)).collect();
    let mut pulled: Vec<Pulled> = Vec::new();
    for _ in 0..ROUNDS {
        pulled.extend(store.trigger(&rows).await?);
        let found = store.standing(StandingQuery::Of(&ids)).await?;
        // Between the two statements the job moved to ready, still untriggered.
        let still = |(id, uid): &(JobId, Uuid)| found.iter().any(|s| (s.id, s.uid) == (*id, *uid) && s.untriggered());
        if pointers.iter().any(still) {
            continue;
        }
        let said: Vec<Triggered> = pointers.iter().map(|p| said(*p, &found, &mut pulled)).collect();
        wake(store, &said);
        return Ok(said);
    }
    Err(Error::Conflict(
        "a job changed while it was being triggered; trigger it again".into(),
    ))
}

/// A pointer that comes twice triggers once.
fn said((id, uid): (JobId, Uuid), found: &[Standing], pulled: &mut Vec<Pulled>) -> Triggered {
    let Some(standing) = found.iter().find(|s| s.id == id) else {
        return Triggered::Unknown;
    };
    if standing.uid != uid {
        return Triggered::Foreign;
    }
    let mut standing = standing.clone();
    if let Some(at) = pulled.iter().position(|p| p.id == id.0) {
        let pulled = pulled.swap_remove(at);
        // If a worker took the job meanwhile, its epoch is that of the attempt that the pointer started.
        if standing.state != State::Leased {
            standing.epoch = pulled.epoch;
        }
        return Triggered::Now(standing);
    }
    match standing.state {
        State::Case | State::Finished => Triggered::Over(standing),
        _ => Triggered::Already(standing),
    }
}

/// Only for jobs in ready: for a waiting job the workers are notified when its turn comes.
fn wake(store: &dyn Store, said: &[Triggered]) {
    let mut queues: Vec<i64> = said
        .iter()
        .filter_map(|said| match said {
            Triggered::Now(s) if s.state == State::Ready => Some(queue_no(&s.queue)),
            _ => None,
        })
        .collect();
    queues.sort_unstable();
    queues.dedup();
    if !queues.is_empty() {
        store.wake(&queues);
    }
}

impl Standing {
    /// Whether it was enqueued with `on_trigger` and is not triggered yet.
    pub fn untriggered(&self) -> bool {
        self.due_at == Some(untriggered())
    }
}
