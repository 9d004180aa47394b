//! The metrics that events make.

use std::time::Duration;

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};
use rowlock::{
    Ended,
    event::{Event, Skipped},
};

use crate::{Names, of_lane};

/// Upper bounds of the buckets of a duration in milliseconds.
const BUCKETS_MS: [f64; 15] = [
    5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2.5e3, 5e3, 1e4, 6e4, 6e5,
];

/// The metrics that events make.
pub(crate) struct Instruments {
    seed: Option<Seed>,
    semconv: Option<Semconv>,
    processed: Counter<u64>,
    failed: Counter<u64>,
    stale_recovered: Counter<u64>,
    retired: Counter<u64>,
    duplicates_suppressed: Counter<u64>,
    guard_changes: Counter<u64>,
    late_writes_refused: Counter<u64>,
    effects_uncertain: Counter<u64>,
    effects_replayed: Counter<u64>,
    commits_resolved: Counter<u64>,
    cancelled: Counter<u64>,
    cut_off: Counter<u64>,
    declared_dead: Counter<u64>,
    wait_ms: Histogram<f64>,
    recovery_ms: Histogram<f64>,
}

/// Our metrics that have a counterpart in the conventions.
struct Seed {
    claimed: Counter<u64>,
    duration_ms: Histogram<f64>,
}

/// The counterparts: version 1.42 of the conventions, which still calls them experimental.
struct Semconv {
    consumed: Counter<u64>,
    duration_s: Histogram<f64>,
}

impl Seed {
    fn new(meter: &Meter) -> Seed {
        Seed {
            claimed: counter(meter, "queue.claimed", "Jobs claimed"),
            duration_ms: histogram(meter, "queue.job_duration_ms", "From an attempt's start to its commit"),
        }
    }
}

impl Semconv {
    fn new(meter: &Meter) -> Semconv {
        Semconv {
            consumed: meter
                .u64_counter("messaging.client.consumed.messages")
                .with_unit("{message}")
                .with_description("Jobs claimed")
                .build(),
            duration_s: meter
                .f64_histogram("messaging.process.duration")
                .with_unit("s")
                .with_description("From an attempt's start to its commit")
                .with_boundaries(BUCKETS_MS.iter().map(|ms| ms / 1e3).collect())
                .build(),
        }
    }

    fn of(queue: &str, operation: &'static str) -> Vec<KeyValue> {
        vec![
            KeyValue::new("messaging.system", "rowlock"),
            KeyValue::new("messaging.destination.name", queue.to_owned()),
            KeyValue::new("messaging.operation.name", operation),
        ]
    }
}

fn counter(meter: &Meter, name: &'static str, description: &'static str) -> Counter<u64> {
    meter
        .u64_counter(name)
        .with_unit("{job}")
        .with_description(description)
        .build()
}

fn histogram(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("ms")
        .with_description(description)
        .with_boundaries(BUCKETS_MS.to_vec())
        .build()
}

impl Instruments {
    pub(crate) fn new(meter: &Meter, names: Names) -> Instruments {
        Instruments {
            seed: (names != Names::Semconv).then(|| Seed::new(meter)),
            semconv: (names != Names::Seed).then(|| Semconv::new(meter)),
            processed: counter(
                meter,
                "queue.processed",
                "Attempts that are done, their commit included",
            ),
            failed: counter(
                meter,
                "queue.failed",
                "Attempts that failed and whose failure is recorded",
            ),
            stale_recovered: counter(meter, "queue.stale_recovered", "Leases of dead workers that were ended"),
            retired: counter(meter, "queue.retired", "Jobs that became cases"),
            duplicates_suppressed: counter(meter, "queue.duplicates_suppressed", "Work found done already"),
            guard_changes: counter(meter, "queue.guard_changes", "Concurrent changes that guards caught"),
            late_writes_refused: counter(
                meter,
                "queue.late_writes_refused",
                "Attempts whose result was dropped, because their lease was lost",
            ),
            effects_uncertain: counter(
                meter,
                "queue.effects_uncertain",
                "Outside calls that ended without a reply",
            ),
            effects_replayed: counter(meter, "queue.effects_replayed", "Outside calls saved by a stored reply"),
            commits_resolved: counter(meter, "queue.commits_resolved", "Commits whose outcome was looked up"),
            cancelled: counter(
                meter,
                "queue.cancelled",
                "Jobs cancelled by their handler or their expiry",
            ),
            cut_off: counter(
                meter,
                "queue.cut_off",
                "Times that a worker stopped its handlers before its lease ended",
            ),
            declared_dead: counter(meter, "queue.declared_dead", "Times that a worker was declared dead"),
            wait_ms: histogram(meter, "queue.wait_ms", "From when a job was due to its claim"),
            recovery_ms: histogram(
                meter,
                "queue.recovery_ms",
                "From a dead worker's last beat to the end of a lease",
            ),
        }
    }

    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::Claimed { queue, jobs, .. } => self.claimed(queue, *jobs as u64),
            Event::Settled {
                queue,
                kind,
                ended,
                skipped,
                waited,
                took,
                ..
            } => {
                let of = of_lane(queue, kind);
                self.settled(queue, &of, *ended, *took);
                self.wait_ms.record(waited.as_secs_f64() * 1e3, &of);
                match skipped {
                    Some(Skipped::AlreadyHandled) => self.duplicates_suppressed.add(1, &of),
                    Some(Skipped::Changed) => self.guard_changes.add(1, &of),
                    _ => {}
                }
            }
            Event::LeaseLost { queue, kind, .. } => self.late_writes_refused.add(1, &of_lane(queue, kind)),
            Event::Expired {
                queue,
                kind,
                silent,
                retired,
                ..
            } => {
                let of = of_lane(queue, kind);
                self.recovery_ms.record(silent.as_secs_f64() * 1e3, &of);
                self.stale_recovered.add(1, &of);
                self.retired.add(u64::from(*retired), &of);
            }
            Event::WaitOver { queue, kind, ended, .. } => {
                let of = of_lane(queue, kind);
                match ended {
                    Ended::Retired => self.retired.add(1, &of),
                    _ => self.cancelled.add(1, &of),
                }
            }
            // Without the effect's name: handlers may put ids into it.
            Event::EffectUncertain { .. } => self.effects_uncertain.add(1, &[]),
            Event::EffectReplayed { .. } => self.effects_replayed.add(1, &[]),
            Event::CommitResolved { committed, .. } => {
                self.commits_resolved.add(1, &[KeyValue::new("committed", *committed)]);
            }
            Event::CutOff => self.cut_off.add(1, &[]),
            Event::DeclaredDead => self.declared_dead.add(1, &[]),
            // Not useful as numbers, or read from the database.
            _ => {}
        }
    }

    fn claimed(&self, queue: &str, jobs: u64) {
        if let Some(seed) = &self.seed {
            seed.claimed.add(jobs, &[KeyValue::new("queue", queue.to_owned())]);
        }
        if let Some(semconv) = &self.semconv {
            semconv.consumed.add(jobs, &Semconv::of(queue, "receive"));
        }
    }

    fn settled(&self, queue: &str, of: &[KeyValue], ended: Ended, took: Duration) {
        let failed = matches!(ended, Ended::Retried | Ended::Retired);
        match ended {
            Ended::Done => self.processed.add(1, of),
            Ended::Retired => self.retired.add(1, of),
            Ended::Cancelled => self.cancelled.add(1, of),
            _ => {}
        }
        if failed {
            let mut of = of.to_vec();
            of.push(KeyValue::new("ended", ended.as_str()));
            self.failed.add(1, &of);
        }
        if let Some(seed) = self.seed.as_ref().filter(|_| !took.is_zero()) {
            seed.duration_ms.record(took.as_secs_f64() * 1e3, of);
        }
        if let Some(semconv) = self.semconv.as_ref().filter(|_| !took.is_zero()) {
            let mut of = Semconv::of(queue, "process");
            if failed {
                of.push(KeyValue::new("error.type", ended.as_str()));
            }
            semconv.duration_s.record(took.as_secs_f64(), &of);
        }
    }
}
