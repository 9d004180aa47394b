//! Passes a slot and its connection from one atomic job to the next in line: the string that commits one job opens the
//! transaction of the next.
//!
//! The next job's transaction begins after the previous job's commit, as with any two jobs of one slot.

use tokio_util::sync::CancellationToken;

use super::crew::{JobLine, WaitingJob};
use crate::{
    attempt::{Env, Next, within},
    root::Backend,
    store::{Opening, Timing, TxEnd},
};

/// How many jobs a task takes over before others get its slot. Each one leaves a task without a job; that task ends
/// when it gets a slot.
const JOBS_MAX: usize = 16;

/// What one job leaves to the next.
pub(crate) struct Relay<'a, DB: Backend> {
    line: &'a JobLine<DB>,
    stopping: &'a CancellationToken,
    left: usize,
    /// The transaction of the current job, begun by the previous job.
    begun: Option<DB::Held>,
    following: Option<Following<DB>>,
}

struct Following<DB: Backend> {
    job: WaitingJob<DB>,
    begun: Option<DB::Held>,
}

impl<'a, DB: Backend> Relay<'a, DB> {
    /// Takes jobs from this line until the worker stops.
    pub(super) fn along(line: &'a JobLine<DB>, stopping: &'a CancellationToken) -> Relay<'a, DB> {
        Relay {
            line,
            stopping,
            left: JOBS_MAX,
            begun: None,
            following: None,
        }
    }

    /// Goes on to the job that was picked.
    pub(super) async fn step(&mut self, env: &Env<DB>) -> Option<WaitingJob<DB>> {
        if let Some(unused) = self.begun.take()
            && let Err(error) = within(env.timing.lease, DB::end(env.rowlock.store(), unused, TxEnd::RollBack)).await
        {
            // Its connection is closed, and nothing was written on it.
            tracing::debug!("could not roll back an unused transaction in time: {}", error.cause());
        }
        let following = self.following.take()?;
        self.begun = following.begun;
        Some(following.job)
    }
}

impl<DB: Backend> Next<DB> for Relay<'_, DB> {
    fn begun(&mut self) -> Option<DB::Held> {
        self.begun.take()
    }

    /// Picks the job that runs in this slot after the current one, if an atomic job is first in line.
    fn pick(&mut self, timing: Timing) -> Option<Opening> {
        if self.left == 0 || self.stopping.is_cancelled() {
            return None;
        }
        let job = self.line.take_atomic()?;
        self.left -= 1;
        let (token, level) = (job.job.token, job.handler.level);
        self.following = Some(Following { job, begun: None });
        Some(Opening { token, timing, level })
    }

    fn pass(&mut self, held: DB::Held) {
        if let Some(following) = &mut self.following {
            following.begun = Some(held);
        }
    }

    /// The picked job goes back in line, if there is a task left to run it.
    fn put_back(&mut self) {
        if let Some(following) = self.following.take()
            && let Some(job) = self.line.put_back(following.job)
        {
            self.following = Some(Following { job, begun: None });
        }
    }
}

impl<DB: Backend> Drop for Relay<'_, DB> {
    /// A task that panics leaves its own job to recovery, and no other.
    fn drop(&mut self) {
        self.put_back();
    }
}
