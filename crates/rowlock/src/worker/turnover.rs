//! How fast a queue's slots turn over here, and how many jobs to claim ahead of them.
//!
//! Jobs claimed ahead keep the slots busy while the next claim is under way. Claiming more would hoard jobs, as another
//! worker may be idle. So a queue claims ahead what its slots finish within [`AHEAD`], from thousands of jobs a second
//! to one a minute.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{attempt::hand::Names, job::queue_no};

/// Jobs that are claimed ahead should start within this time.
const AHEAD: Duration = Duration::from_millis(100);
/// The most jobs to claim ahead, however fast they are.
pub(crate) const AHEAD_MAX: usize = 1000;
/// The weight of the newest handler in the mean.
const WEIGHT: f64 = 0.1;

/// One queue's slots.
#[derive(Debug)]
pub(crate) struct Turnover {
    pub(crate) queue_no: i64,
    /// The queue's name and the worker's name, for events about its jobs.
    pub(crate) queue: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) concurrency: usize,
    /// How many jobs one slot may run in one batch.
    batch: usize,
    /// Set by the user: claimed ahead however long the handlers take.
    prefetch: Option<usize>,
    /// Claimed jobs that wait for a slot or whose handlers are in one, given up on or not.
    taken: AtomicUsize,
    /// Smoothed time of a handler in nanoseconds; 0 before the first has ended.
    mean_ns: AtomicU64,
    /// A job waited here for a slot without success: nothing is claimed ahead until the slots turn over again.
    slow: AtomicBool,
}

impl Turnover {
    pub(crate) fn new(
        (queue, worker): (&str, &str),
        concurrency: usize,
        batch: usize,
        prefetch: Option<usize>,
    ) -> Turnover {
        Turnover {
            queue_no: queue_no(queue),
            queue: queue.into(),
            worker: worker.into(),
            concurrency,
            batch,
            prefetch,
            taken: AtomicUsize::new(0),
            mean_ns: AtomicU64::new(0),
            slow: AtomicBool::new(false),
        }
    }

    /// The names of a job of this queue.
    pub(crate) fn names(&self, kind: &str) -> Names {
        Names {
            queue: self.queue.clone(),
            queue_no: self.queue_no,
            worker: self.worker.clone(),
            kind: kind.to_owned(),
        }
    }

    pub(crate) fn took_one(&self) {
        self.taken.fetch_add(1, Relaxed);
    }

    /// A job's handler is over, or will never start.
    pub(crate) fn let_one_go(&self) {
        self.taken.fetch_sub(1, Relaxed);
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    pub(crate) fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Relaxed);
    }

    /// The handlers of this many jobs took this long, one after another. If two end at the same moment, one may get
    /// lost, which a mean can tolerate.
    pub(crate) fn learn(&self, took: Duration, jobs: usize) {
        let took = took.as_nanos().min(u128::from(u64::MAX)) as f64 / jobs.max(1) as f64;
        let mean = self.mean_ns.load(Relaxed) as f64;
        let mean = if mean == 0.0 {
            took
        } else {
            mean + (took - mean) * WEIGHT
        };
        self.mean_ns.store(mean.max(1.0) as u64, Relaxed);
    }

    /// How many jobs the slots hold when all are busy.
    fn in_slots(&self) -> usize {
        self.concurrency + (self.concurrency * (self.batch - 1)).min(AHEAD_MAX)
    }

    /// How many jobs beyond that this queue may hold.
    fn ahead(&self) -> usize {
        if self.slow.load(Relaxed) {
            return 0;
        }
        if let Some(jobs) = self.prefetch {
            return jobs;
        }
        let mean = self.mean_ns.load(Relaxed);
        if mean == 0 {
            // Nothing is known yet: one round more than the slots, so that no pause follows the first claim.
            return self.in_slots().min(100);
        }
        let finished = self.concurrency as f64 * AHEAD.as_nanos() as f64 / mean as f64;
        (finished as usize).min(AHEAD_MAX)
    }

    /// How many jobs to claim now: none while the slots are busy and more than half of the allowed jobs are held, so
    /// that claims come in batches.
    pub(crate) fn room(&self) -> usize {
        let (taken, room) = (self.taken(), self.in_slots() + self.ahead());
        if taken < room && (taken < self.concurrency || taken <= room / 2) {
            return room - taken;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(handler: Duration, concurrency: usize) -> Turnover {
        let queue = Turnover::new(("queue", "worker"), concurrency, 1, None);
        for _ in 0..100 {
            queue.learn(handler, 1);
        }
        queue
    }

    #[test]
    fn fast_handlers_claim_far_ahead_and_slow_ones_not_at_all() {
        assert_eq!(after(Duration::from_micros(5), 16).room(), 16 + AHEAD_MAX);
        assert_eq!(after(Duration::from_millis(4), 16).room(), 16 + 400);
        assert_eq!(after(Duration::from_secs(1), 16).room(), 16 + 1);
        assert_eq!(after(Duration::from_secs(60), 16).room(), 16);
        assert_eq!(after(Duration::from_secs(60), 1).room(), 1);
    }

    #[test]
    fn nothing_is_asked_for_until_half_of_the_room_is_free() {
        let queue = after(Duration::from_millis(4), 16);
        (0..416).for_each(|_| queue.took_one());
        assert_eq!(queue.room(), 0);
        (0..207).for_each(|_| queue.let_one_go());
        assert_eq!(queue.room(), 0, "209 of 416 are there");
        queue.let_one_go();
        assert_eq!(queue.room(), 208);
    }

    #[test]
    fn a_free_slot_is_asked_for_at_once_when_nothing_may_be_claimed_ahead() {
        let queue = after(Duration::from_secs(60), 4);
        (0..4).for_each(|_| queue.took_one());
        assert_eq!(queue.room(), 0);
        queue.let_one_go();
        assert_eq!(queue.room(), 1);
    }

    #[test]
    fn slots_that_run_batches_hold_and_finish_more() {
        let queue = Turnover::new(("queue", "worker"), 4, 10, None);
        assert_eq!(queue.room(), 40 + 40, "before anything is known");
        queue.learn(Duration::from_millis(20), 10);
        assert_eq!(queue.room(), 40 + 200, "2 ms a job");
    }

    #[test]
    fn a_number_set_by_the_user_stands_until_the_slots_stop_turning_over() {
        let queue = Turnover::new(("queue", "worker"), 4, 1, Some(7));
        queue.learn(Duration::from_micros(1), 1);
        assert_eq!(queue.room(), 11);
        queue.set_slow(true);
        assert_eq!(queue.room(), 4);
    }
}
