//! What happened: one event per operation, emitted after its commit, and the counters that add them up.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub use crate::lease::WorkerId;
use crate::{
    breaker::BreakerState,
    id::{EffectNo, JobId},
    state::Ended,
};

/// Why a job was done without its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skipped {
    /// The handler found the work done already ([`AlreadyHandled`](crate::AlreadyHandled)).
    AlreadyHandled,
    /// What a guard protects had changed since the handler read it ([`Error::Changed`](crate::Error::Changed)).
    Changed,
}

/// One thing that happened in this worker process, emitted after its commit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Jobs of a queue were claimed.
    #[non_exhaustive]
    Claimed {
        /// The queue.
        queue: Arc<str>,
        /// How many.
        jobs: usize,
    },
    /// An attempt ended and its outcome committed.
    #[non_exhaustive]
    Settled {
        /// The job.
        id: JobId,
        /// Its queue.
        queue: Arc<str>,
        /// Its kind.
        kind: String,
        /// Which attempt.
        attempt: i32,
        /// Which lease of it, counted over all its attempts, deferred and released ones too.
        epoch: i64,
        /// How it ended.
        ended: Ended,
        /// Done, but without its effect.
        skipped: Option<Skipped>,
        /// From when it was due to when it was claimed, by the database's clock.
        waited: Duration,
        /// From the handler's start to the commit; zero where it was not started.
        took: Duration,
        /// What went wrong, if anything did.
        error: Option<String>,
    },
    /// An attempt's result was dropped, because its lease was lost.
    #[non_exhaustive]
    LeaseLost {
        /// The job.
        id: JobId,
        /// Its queue.
        queue: Arc<str>,
        /// Its kind.
        kind: String,
        /// Which attempt.
        attempt: i32,
        /// Which lease of it, counted over all its attempts, deferred and released ones too.
        epoch: i64,
    },
    /// The answer to a commit, or to what was sent together with it, was an error or missing, and the result was looked
    /// up.
    #[non_exhaustive]
    CommitResolved {
        /// The job.
        id: JobId,
        /// Which lease of it, counted over all its attempts, deferred and released ones too.
        epoch: i64,
        /// Whether it had committed.
        committed: bool,
    },
    /// Recovery ended the lease of a dead worker.
    #[non_exhaustive]
    Expired {
        /// The job.
        id: JobId,
        /// Its queue.
        queue: String,
        /// Its kind.
        kind: String,
        /// The worker that was lost.
        worker: WorkerId,
        /// From that worker's last heartbeat to now.
        silent: Duration,
        /// Out of attempts: it became a case.
        retired: bool,
    },
    /// A batch did not commit as a whole. Its jobs that are not settled are run again, one by one.
    #[non_exhaustive]
    BatchUndone {
        /// Their kind.
        kind: String,
        /// How many are run again.
        jobs: usize,
        /// What kept it from committing.
        reason: String,
    },
    /// A claim's reply had been lost, and its jobs were handed back.
    #[non_exhaustive]
    ClaimReplyLost {
        /// How many.
        jobs: usize,
    },
    /// A handler got the stored reply of an effect instead of making the external call again.
    #[non_exhaustive]
    EffectReplayed {
        /// The job.
        id: JobId,
        /// The effect's number.
        no: EffectNo,
        /// The effect's name.
        name: String,
    },
    /// It is unknown whether an effect happened: its call ended without a reply, or its attempt did.
    #[non_exhaustive]
    EffectUncertain {
        /// The job.
        id: JobId,
        /// The effect's number.
        no: EffectNo,
        /// The effect's name.
        name: String,
    },
    /// Upkeep removed cases that were not decided in time ([`Retention::cases`](crate::Retention::cases)).
    #[non_exhaustive]
    CasesRemoved {
        /// How many.
        cases: u64,
    },
    /// An attempt of this worker opened or closed a breaker.
    #[non_exhaustive]
    BreakerChanged {
        /// The dependency.
        name: String,
        /// Its state now.
        state: BreakerState,
    },
    /// This worker could not renew in time and stopped its handlers.
    CutOff,
    /// This worker was declared dead by another and goes on under a new id.
    DeclaredDead,
    /// An after-commit hook failed or panicked, or a job's hooks were dropped because the hooks of too many other jobs
    /// run. The job is done nevertheless.
    #[non_exhaustive]
    HookFailed {
        /// The job.
        id: JobId,
        /// Its kind.
        kind: String,
        /// The error.
        error: String,
    },
    /// A waiting job reached its limit before the name was completed.
    #[non_exhaustive]
    WaitOver {
        /// The job.
        id: JobId,
        /// Its queue.
        queue: String,
        /// Its kind.
        kind: String,
        /// Retired by its time limit, or cancelled by its expiry.
        ended: Ended,
        /// What did not come.
        reason: String,
    },
}

impl Event {
    /// Logs failed attempts too: without a line, a job that fails all night leaves no trace in the user's log.
    pub(crate) fn log(&self) {
        let Event::Settled {
            id,
            queue,
            kind,
            attempt,
            ended,
            error,
            ..
        } = self
        else {
            return;
        };
        let error = error.as_deref().unwrap_or("no error given");
        match ended {
            Ended::Retried => tracing::warn!(job = id.0, %queue, kind, "attempt {attempt} failed, retrying: {error}"),
            Ended::Retired => tracing::error!(
                job = id.0,
                %queue,
                kind,
                "attempt {attempt} failed, the job is now a case: {error}"
            ),
            _ => {}
        }
    }
}

/// Called with every event.
pub(crate) type Listener = Box<dyn Fn(&Event) + Send + Sync>;

/// Counts an event, logs it and calls the listeners. A listener that panics does not keep the others from being called.
pub(crate) fn emit(event: Event, counters: &Counters, listeners: &[Listener]) {
    counters.add(&event);
    event.log();
    for listener in listeners {
        if catch_unwind(AssertUnwindSafe(|| listener(&event))).is_err() {
            tracing::error!(?event, "an event listener panicked; the worker continues");
        }
    }
}

/// Running totals of one worker. Reading them is cheap and never blocks the worker.
#[derive(Debug, Default)]
pub struct Counters {
    claimed: AtomicU64,
    settled: [AtomicU64; Ended::ALL.len()],
    already_handled: AtomicU64,
    changed: AtomicU64,
    lease_lost: AtomicU64,
    commits_resolved: AtomicU64,
    expired: AtomicU64,
    batches_undone: AtomicU64,
    claim_replies_lost: AtomicU64,
    effects_replayed: AtomicU64,
    effects_uncertain: AtomicU64,
    cases_removed: AtomicU64,
    breakers_opened: AtomicU64,
    cut_off: AtomicU64,
    declared_dead: AtomicU64,
    hooks_failed: AtomicU64,
    waits_over: AtomicU64,
    by_kind: Mutex<HashMap<(String, Ended), u64>>,
}

impl Counters {
    pub(crate) fn add(&self, event: &Event) {
        let one = |c: &AtomicU64| c.fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Claimed { jobs, .. } => {
                self.claimed.fetch_add(*jobs as u64, Ordering::Relaxed);
            }
            Event::Settled {
                kind, ended, skipped, ..
            } => {
                one(&self.settled[*ended as usize]);
                match skipped {
                    Some(Skipped::AlreadyHandled) => _ = one(&self.already_handled),
                    Some(Skipped::Changed) => _ = one(&self.changed),
                    None => {}
                }
                let mut by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
                match by_kind.get_mut(&(kind.clone(), *ended)) {
                    Some(n) => *n += 1,
                    None => {
                        by_kind.insert((kind.clone(), *ended), 1);
                    }
                }
            }
            Event::LeaseLost { .. } => {
                one(&self.lease_lost);
            }
            Event::CommitResolved { .. } => {
                one(&self.commits_resolved);
            }
            Event::Expired { .. } => {
                one(&self.expired);
            }
            Event::BatchUndone { .. } => {
                one(&self.batches_undone);
            }
            Event::ClaimReplyLost { jobs } => {
                self.claim_replies_lost.fetch_add(*jobs as u64, Ordering::Relaxed);
            }
            Event::EffectReplayed { .. } => {
                one(&self.effects_replayed);
            }
            Event::EffectUncertain { .. } => {
                one(&self.effects_uncertain);
            }
            Event::CasesRemoved { cases } => {
                self.cases_removed.fetch_add(*cases, Ordering::Relaxed);
            }
            Event::BreakerChanged { state, .. } => {
                if *state == BreakerState::Open {
                    one(&self.breakers_opened);
                }
            }
            Event::CutOff => {
                one(&self.cut_off);
            }
            Event::DeclaredDead => {
                one(&self.declared_dead);
            }
            Event::HookFailed { .. } => {
                one(&self.hooks_failed);
            }
            Event::WaitOver { .. } => {
                one(&self.waits_over);
            }
        }
    }

    /// Jobs claimed.
    pub fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Attempts that ended like this and committed.
    pub fn settled(&self, ended: Ended) -> u64 {
        self.settled[ended as usize].load(Ordering::Relaxed)
    }

    /// Attempts of one kind that ended like this and committed.
    pub fn settled_of(&self, kind: &str, ended: Ended) -> u64 {
        let by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        by_kind.get(&(kind.to_owned(), ended)).copied().unwrap_or(0)
    }

    /// Suppressed duplicates: handlers that found the work done already.
    pub fn already_handled(&self) -> u64 {
        self.already_handled.load(Ordering::Relaxed)
    }

    /// Concurrent changes that guards caught: handlers that found changes in what they had read. Above zero, the guards
    /// are useful; a very high number means that the same work runs concurrently.
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// Fenced-off writes: attempts whose result was dropped, because their lease was lost.
    pub fn lease_lost(&self) -> u64 {
        self.lease_lost.load(Ordering::Relaxed)
    }

    /// Commits whose reply was lost and whose outcome was looked up.
    pub fn commits_resolved(&self) -> u64 {
        self.commits_resolved.load(Ordering::Relaxed)
    }

    /// Leases of dead workers that this worker ended.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Batches that did not commit as a whole, so that their jobs were run again one by one. If there are many, give
    /// the kind a smaller batch, or none.
    pub fn batches_undone(&self) -> u64 {
        self.batches_undone.load(Ordering::Relaxed)
    }

    /// Jobs handed back, because the reply of the claim that took them was lost.
    pub fn claim_replies_lost(&self) -> u64 {
        self.claim_replies_lost.load(Ordering::Relaxed)
    }

    /// External calls saved, because the effect's reply was stored already.
    pub fn effects_replayed(&self) -> u64 {
        self.effects_replayed.load(Ordering::Relaxed)
    }

    /// Doubts: calls that ended without a reply, here or in an attempt that was lost.
    pub fn effects_uncertain(&self) -> u64 {
        self.effects_uncertain.load(Ordering::Relaxed)
    }

    /// Cases that were not decided in time and that this worker's upkeep removed.
    pub fn cases_removed(&self) -> u64 {
        self.cases_removed.load(Ordering::Relaxed)
    }

    /// How often an attempt of this worker opened a breaker.
    pub fn breakers_opened(&self) -> u64 {
        self.breakers_opened.load(Ordering::Relaxed)
    }

    /// How often this worker could not renew in time and stopped its handlers.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// How often this worker was declared dead.
    pub fn declared_dead(&self) -> u64 {
        self.declared_dead.load(Ordering::Relaxed)
    }

    /// After-commit hooks that failed or panicked.
    pub fn hooks_failed(&self) -> u64 {
        self.hooks_failed.load(Ordering::Relaxed)
    }

    /// Waiting jobs that this worker ended, because they reached their limit first.
    pub fn waits_over(&self) -> u64 {
        self.waits_over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(ended: Ended) -> Event {
        Event::Settled {
            id: JobId(7),
            queue: "q".into(),
            kind: "mail".into(),
            attempt: 1,
            epoch: 1,
            ended,
            skipped: None,
            waited: Duration::ZERO,
            took: Duration::ZERO,
            error: Some("no luck".into()),
        }
    }

    #[test]
    fn a_settled_event_counts_once_per_outcome_and_kind() {
        let counters = Counters::default();
        for ended in Ended::ALL {
            assert_eq!(counters.settled(ended), 0);
            counters.add(&settled(ended));
            assert_eq!((counters.settled(ended), counters.settled_of("mail", ended)), (1, 1));
        }
    }

    #[test]
    fn removed_cases_are_counted_one_by_one() {
        let counters = Counters::default();
        counters.add(&Event::CasesRemoved { cases: 3 });
        counters.add(&Event::CasesRemoved { cases: 2 });
        assert_eq!(counters.cases_removed(), 5);
    }

    #[test]
    fn a_failed_attempt_is_a_line_in_the_log_and_a_good_one_is_not() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_writer(move || Lines(writer.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for ended in Ended::ALL {
                settled(ended).log();
            }
        });
        let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let [retried, retired] = lines[..] else {
            panic!("{text}")
        };
        assert!(
            retried.starts_with("WARN") && retried.contains("attempt 1 failed, retrying: no luck"),
            "{retried}"
        );
        let case = "attempt 1 failed, the job is now a case: no luck";
        assert!(retired.starts_with("ERROR") && retired.contains(case), "{retired}");
        assert!(
            lines
                .iter()
                .all(|line| line.contains("job=7") && line.contains("kind=\"mail\"")),
            "{text}"
        );
    }

    #[derive(Clone)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
