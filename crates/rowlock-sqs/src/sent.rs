//! What was sent and when: a deep backlog is not sent over and over, and a job that waits gets its pointers further
//! apart.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rowlock::observe::Standing;
use sha2::{Digest, Sha256};

use crate::{body::Pointer, outside::Outgoing};

/// Between two pointers to one job there are at most so many times the grace.
pub(crate) const GRACES_MAX: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    times: u32,
}

/// The sends that one process remembers. Another process, or this one started anew, knows nothing of them: the row is
/// the truth, and a pointer too many changes nothing.
#[derive(Debug)]
pub(crate) struct Sent {
    last: Mutex<HashMap<i64, Last>>,
    forgotten: AtomicU64,
    grace: Duration,
    max: usize,
}

impl Sent {
    pub(crate) fn new(grace: Duration, max: usize) -> Sent {
        Sent {
            last: Mutex::default(),
            forgotten: AtomicU64::new(0),
            grace,
            max,
        }
    }

    fn last(&self) -> MutexGuard<'_, HashMap<i64, Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often sends were forgotten because the limit was reached.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// How often a pointer to the job was sent, if it is time for another.
    pub(crate) fn is_time(&self, job: i64) -> Option<u32> {
        match self.last().get(&job) {
            None => Some(0),
            Some(last) => {
                let apart = self.grace * 2u32.saturating_pow(last.times.saturating_sub(1)).min(GRACES_MAX);
                (last.at.elapsed() >= apart).then_some(last.times)
            }
        }
    }

    pub(crate) fn note(&self, job: i64) {
        let mut sent = self.last();
        let last = sent.entry(job).or_insert(Last {
            at: Instant::now(),
            times: 0,
        });
        last.at = Instant::now();
        last.times += 1;
        if sent.len() > self.max {
            // Forget the older half. That costs one extra pointer for each.
            self.forgotten.fetch_add(1, Ordering::Relaxed);
            let mut times: Vec<Instant> = sent.values().map(|last| last.at).collect();
            let middle = times.len() / 2;
            let (_, middle, _) = times.select_nth_unstable(middle);
            let middle = *middle;
            sent.retain(|_, last| last.at > middle);
        }
    }
}

/// The message that points to this job. The first of each epoch carries the same name in a FIFO queue, so that a send
/// whose reply was lost is dropped there. Every later one has a new name, or it would be dropped too.
pub(crate) fn pointer(standing: &Standing, times: u32) -> Outgoing {
    let pointer = Pointer {
        job: standing.id,
        uid: standing.uid,
    };
    let once = match times {
        0 => format!("{}-{}", standing.uid, standing.epoch),
        _ => format!("{}-{}-{:016x}", standing.uid, standing.epoch, fastrand::u64(..)),
    };
    Outgoing {
        body: serde_json::to_string(&pointer).unwrap_or_default(),
        group: standing
            .group
            .clone()
            .unwrap_or_else(|| group_of(&standing.uid.to_string())),
        once,
    }
}

/// A job without a group is a separate message group: nothing waits for it.
fn group_of(uid: &str) -> String {
    let hash = Sha256::digest(uid.as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_to_one_job_come_further_and_further_apart() {
        let sent = Sent::new(Duration::from_secs(3600), 1000);
        assert_eq!(sent.is_time(7), Some(0));
        sent.note(7);
        assert_eq!(sent.is_time(7), None);
        assert_eq!(sent.is_time(8), Some(0));
        let sent = Sent::new(Duration::ZERO, 1000);
        sent.note(7);
        sent.note(7);
        assert_eq!(sent.is_time(7), Some(2));
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let sent = Sent::new(Duration::from_secs(3600), 1000);
        for job in 0..5000 {
            sent.note(job);
        }
        assert!(sent.last().len() <= 1000);
        assert_eq!(sent.is_time(4999), None, "the newest are remembered");
    }
}
