//! How many jobs of a kind may share one transaction, and for how long it accepts further jobs.

use std::time::Duration;

/// The most jobs that may share a commit: with more, they wait for each other's row locks longer than a commit costs.
pub(crate) const JOBS_MAX: usize = 50;

/// Jobs of one kind that share a transaction and its commit, for [`Handler::batch`](crate::Handler::batch).
///
/// Rows that the first job locks stay locked until the last job's commit, so use this for short handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub(crate) jobs_max: usize,
    pub(crate) within: Duration,
    pub(crate) savepoints: bool,
}

impl Batch {
    /// Each job has a separate transaction.
    pub(crate) const NONE: Batch = Batch {
        jobs_max: 1,
        within: Duration::from_millis(50),
        savepoints: true,
    };

    /// At most this many jobs per commit, 1 to 50. A batch does not wait for more jobs: it takes what is claimed and
    /// waiting.
    pub fn up_to(jobs: usize) -> Batch {
        Batch {
            jobs_max: jobs,
            ..Batch::NONE
        }
    }

    /// No further job joins once the transaction has been open for this long (50 ms unless set; at most a tenth of the
    /// worker's lease). The job that runs then still has its own time limit.
    pub fn within(mut self, time: Duration) -> Batch {
        self.within = time;
        self
    }

    /// Skips each job's savepoint, which saves a round trip. A job that fails then rolls the whole transaction back,
    /// and every job in it is run again alone, by this worker and under the same tokens. The job still fails alone, but
    /// its neighbours have run twice. Use this where failures are rare.
    pub fn without_savepoints(mut self) -> Batch {
        self.savepoints = false;
        self
    }

    /// What is wrong with the settings, if anything is.
    pub(crate) fn problem(&self, lease: Duration) -> Option<String> {
        let jobs = self.jobs_max;
        if jobs == 0 || jobs > JOBS_MAX {
            return Some(format!(
                "batch size {jobs} is out of range (1 to {JOBS_MAX}, default 10)"
            ));
        }
        let most = lease / 10;
        let fits = !self.within.is_zero() && self.within <= most;
        (!fits).then(|| {
            format!(
                "batch time {:?} is out of range (above 0, at most a tenth of the lease: {most:?})",
                self.within
            )
        })
    }
}

impl Default for Batch {
    /// Ten jobs per commit.
    fn default() -> Batch {
        Batch::up_to(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_a_size_and_a_time_within_bounds() {
        let lease = Duration::from_secs(15);
        let fits = |batch: Batch| batch.problem(lease).is_none();
        assert!(fits(Batch::default()) && fits(Batch::up_to(1)) && fits(Batch::up_to(50)) && fits(Batch::NONE));
        assert!(!fits(Batch::up_to(0)) && !fits(Batch::up_to(51)));
        assert!(fits(Batch::default().within(lease / 10)));
        assert!(!fits(Batch::default().within(lease / 9)) && !fits(Batch::default().within(Duration::ZERO)));
    }
}
