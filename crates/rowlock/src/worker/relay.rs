//! Passes a slot from one atomic job to the next in line, and its connection with it: the string that commits the one
//! opens the transaction of the other.
//!
//! The next job's transaction begins after the commit of the one before, as with any two jobs of one slot.

use tokio_util::sync::CancellationToken;

use super::{
    crew::{Line, Waiting},
    run::{Env, within},
};
use crate::{
    root::Backend,
    store::{Opening, Timing},
};

/// How many jobs a task takes over before others get its slot. Each leaves a task without a job, which ends when it gets
/// a slot.
const JOBS_MAX: usize = 16;

/// What one job leaves to the next.
pub(crate) struct Relay<'a, DB: Backend> {
    from: Option<(&'a Line<DB>, &'a CancellationToken)>,
    left: usize,
    /// The transaction of the job that runs now, begun by the one before.
    begun: Option<DB::Held>,
    next: Option<Next<DB>>,
}

struct Next<DB: Backend> {
    job: Waiting<DB>,
    begun: Option<DB::Held>,
}

impl<'a, DB: Backend> Relay<'a, DB> {
    /// For a job that is followed by none.
    pub(crate) fn none() -> Relay<'a, DB> {
        Relay {
            from: None,
            left: 0,
            begun: None,
            next: None,
        }
    }

    /// Takes jobs from this line until the worker stops.
    pub(super) fn along(line: &'a Line<DB>, stopping: &'a CancellationToken) -> Relay<'a, DB> {
        let mut relay = Relay::none();
        relay.from = Some((line, stopping));
        relay.left = JOBS_MAX;
        relay
    }

    /// The transaction that was begun for the job that runs now.
    pub(crate) fn take_begun(&mut self) -> Option<DB::Held> {
        self.begun.take()
    }

    /// Picks the job that runs in this slot after the present one, if an atomic job is first in line.
    pub(super) fn pick(&mut self, timing: Timing) -> Option<Opening> {
        let (line, stopping) = self.from?;
        if self.left == 0 || stopping.is_cancelled() {
            return None;
        }
        let job = line.next_atomic()?;
        self.left -= 1;
        let (token, level) = (job.job.token, job.handler.level);
        self.next = Some(Next { job, begun: None });
        Some(Opening { token, timing, level })
    }

    /// The picked job's transaction is open.
    pub(super) fn pass(&mut self, held: DB::Held) {
        if let Some(next) = &mut self.next {
            next.begun = Some(held);
        }
    }

    /// The picked job's turn may be long in coming: it goes back in line, if there is a task left to run it.
    pub(super) fn put_back(&mut self) {
        let Some((line, _)) = self.from else { return };
        if let Some(next) = self.next.take()
            && let Some(job) = line.put_back(next.job)
        {
            self.next = Some(Next { job, begun: None });
        }
    }

    /// Goes on to the job that was picked.
    pub(super) async fn step(&mut self, env: &Env<DB>) -> Option<Waiting<DB>> {
        if let Some(unused) = self.begun.take()
            && let Err(error) = within(env.timing.lease, DB::undo(env.rowlock.store(), unused)).await
        {
            // Its connection is closed, and nothing was written on it.
            tracing::debug!("could not roll back an unused transaction in time: {}", error.cause());
        }
        let next = self.next.take()?;
        self.begun = next.begun;
        Some(next.job)
    }
}

impl<DB: Backend> Drop for Relay<'_, DB> {
    /// A task that panics leaves its job to recovery, and no other's.
    fn drop(&mut self) {
        self.put_back();
    }
}
