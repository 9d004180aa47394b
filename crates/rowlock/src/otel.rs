//! OpenTelemetry: what a worker's events say, as metrics; and its queues, looked at now and then (feature `otel`).
//!
//! An event is told after its commit, so that nothing is counted which did not happen: a worker that is killed may take what
//! it has not exported with it, and never leaves more behind than the database holds. This crate speaks to the API alone;
//! which SDK exports where is the program's own choice, made before the worker is built.
//!
//! Attempts are shown by the span `queue.process` of `tracing`, with a link to the span in which the job was enqueued; a
//! layer of `tracing-opentelemetry` makes spans of OpenTelemetry of them.

#[cfg(feature = "prometheus")]
pub mod prometheus;

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue, global,
    metrics::{AsyncInstrument, Counter, Histogram, Meter},
};
use tokio_util::sync::CancellationToken;

use crate::{
    breaker::{BreakerState, BreakerView},
    error::chain,
    event::{Event, Listener, Skipped},
    observe::LaneStatus,
    root::{Backend, Rowlock},
    state::Ended,
    store::Store,
};

/// Upper bounds of the buckets of a duration in milliseconds.
const BUCKETS_MS: [f64; 15] = [
    5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2.5e3, 5e3, 1e4, 6e4, 6e5,
];

/// Looking at the queues takes at most this share of the time.
const SAMPLE_SHARE: u32 = 50;

/// Which names metrics have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// `queue.claimed`, `queue.processed` and their like.
    Seed,
    /// Those of the semantic conventions for messaging, where there is one: `messaging.client.consumed.messages` and
    /// `messaging.process.duration`. The rest keeps its own.
    Semconv,
    /// One beside the other.
    #[default]
    Both,
}

/// What a worker measures, for [`Worker::telemetry`](crate::Worker::telemetry).
#[derive(Clone)]
#[must_use]
pub struct Telemetry {
    meter: Meter,
    names: Names,
    every: Duration,
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry::new()
    }
}

impl Telemetry {
    /// On the global meter provider: install it first, or nothing is measured.
    pub fn new() -> Telemetry {
        Telemetry::on(global::meter("rowlock"))
    }

    /// On this meter.
    pub fn on(meter: Meter) -> Telemetry {
        Telemetry {
            meter,
            names: Names::default(),
            every: Duration::from_secs(15),
        }
    }

    /// Which names the metrics have (both, unless set).
    pub fn names(mut self, names: Names) -> Telemetry {
        self.names = names;
        self
    }

    /// How often the queues are looked at for what only the database knows: depth, age, breakers (15 s unless set; less often
    /// where a look takes more than a fiftieth of that). Every worker that is asked to looks; take the largest of what they
    /// report, not the sum.
    pub fn sample_every(mut self, every: Duration) -> Telemetry {
        self.every = every.max(Duration::from_millis(100));
        self
    }

    pub(crate) fn listener(&self) -> Listener {
        let instruments = Instruments::new(&self.meter, self.names);
        Box::new(move |event| instruments.hear(event))
    }

    /// Looks at the queues until the worker is over. What was seen goes with it: callbacks stay with their meter for ever.
    pub(crate) async fn sample<DB: Backend>(self, rowlock: Rowlock<DB>, gone: CancellationToken) {
        let seen = Arc::new(Mutex::new(Look::default()));
        Seen(Arc::downgrade(&seen)).show(&self.meter, &rowlock);
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = gone.cancelled() => return,
            }
            let began = Instant::now();
            let looked = tokio::select! {
                looked = look(rowlock.store()) => looked,
                () = gone.cancelled() => return,
            };
            wait = match &looked {
                Ok(_) => self.every.max(began.elapsed() * SAMPLE_SHARE),
                // However long that took: it says nothing of how long a look takes.
                Err(_) => self.every,
            };
            let looked = looked.unwrap_or_else(|error| {
                tracing::debug!("could not read the queues for metrics, retrying: {}", chain(&error));
                // Nothing is better than what was so once.
                Look::default()
            });
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = looked;
        }
    }
}

#[derive(Default)]
struct Look {
    lanes: Vec<LaneStatus>,
    breakers: Vec<BreakerView>,
}

async fn look(store: &impl Store) -> crate::Result<Look> {
    Ok(Look {
        lanes: store.status().await?.lanes,
        breakers: store.breakers(None).await?,
    })
}

/// What the last look found, while somebody looks.
#[derive(Clone)]
struct Seen(Weak<Mutex<Look>>);

impl Seen {
    fn show<DB: Backend>(&self, meter: &Meter, rowlock: &Rowlock<DB>) {
        let seen = self.clone();
        meter
            .i64_observable_gauge("queue.depth")
            .with_unit("{job}")
            .with_description("Jobs by queue, kind and state")
            .with_callback(move |gauge| seen.with(|look| depth(look, gauge)))
            .build();
        let seen = self.clone();
        meter
            .f64_observable_gauge("queue.oldest_due_age_s")
            .with_unit("s")
            .with_description("For how long the oldest due job has been due")
            .with_callback(move |gauge| seen.with(|look| age(look, gauge)))
            .build();
        let seen = self.clone();
        meter
            .i64_observable_gauge("queue.breaker_state")
            .with_description("0 closed, 1 half-open, 2 open")
            .with_callback(move |gauge| seen.with(|look| breakers(look, gauge)))
            .build();
        let gates = Arc::downgrade(rowlock.gates());
        meter
            .u64_observable_counter("queue.rollout_sides")
            .with_description("How often each side of a rollout was taken")
            .with_callback(move |counter| {
                for count in gates.upgrade().iter().flat_map(|gates| gates.counts()) {
                    for (side, times) in [("on", count.on), ("off", count.off)] {
                        let of = [
                            KeyValue::new("rollout", count.name.clone()),
                            KeyValue::new("side", side),
                        ];
                        counter.observe(times, &of);
                    }
                }
            })
            .build();
    }

    fn with(&self, observe: impl FnOnce(&Look)) {
        if let Some(look) = self.0.upgrade() {
            observe(&look.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn depth(look: &Look, gauge: &dyn AsyncInstrument<i64>) {
    for lane in &look.lanes {
        let states = [
            ("due", lane.due),
            ("scheduled", lane.scheduled),
            ("waiting", lane.waiting),
            ("leased", lane.leased),
            ("case", lane.cases),
        ];
        for (state, jobs) in states {
            let mut of = of_lane(&lane.queue, &lane.kind).to_vec();
            of.push(KeyValue::new("state", state));
            gauge.observe(jobs, &of);
        }
    }
}

fn age(look: &Look, gauge: &dyn AsyncInstrument<f64>) {
    for lane in &look.lanes {
        let age_ms = lane.oldest_due_ms.unwrap_or_default();
        gauge.observe(age_ms as f64 / 1e3, &of_lane(&lane.queue, &lane.kind));
    }
}

fn breakers(look: &Look, gauge: &dyn AsyncInstrument<i64>) {
    for breaker in &look.breakers {
        let state = match breaker.state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        gauge.observe(state, &[KeyValue::new("dependency", breaker.name.clone())]);
    }
}

fn of_lane(queue: &str, kind: &str) -> [KeyValue; 2] {
    [
        KeyValue::new("queue", queue.to_owned()),
        KeyValue::new("kind", kind.to_owned()),
    ]
}

/// The metrics that events make.
struct Instruments {
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

/// Those that have a twin.
struct Seed {
    claimed: Counter<u64>,
    duration_ms: Histogram<f64>,
}

/// The twins: version 1.42 of the conventions, which still calls them experimental.
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
    fn new(meter: &Meter, names: Names) -> Instruments {
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

    fn hear(&self, event: &Event) {
        match event {
            Event::Claimed { queue, jobs } => self.claimed(queue, *jobs as u64),
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
                    None => {}
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
            // Without its name: handlers may name effects by what they are about.
            Event::EffectUncertain { .. } => self.effects_uncertain.add(1, &[]),
            Event::EffectReplayed { .. } => self.effects_replayed.add(1, &[]),
            Event::CommitResolved { committed, .. } => {
                self.commits_resolved.add(1, &[KeyValue::new("committed", *committed)]);
            }
            Event::CutOff => self.cut_off.add(1, &[]),
            Event::DeclaredDead => self.declared_dead.add(1, &[]),
            // Of no use as numbers, or looked at in the database.
            Event::BatchUndone { .. }
            | Event::ClaimReplyLost { .. }
            | Event::CasesRemoved { .. }
            | Event::BreakerChanged { .. }
            | Event::HookFailed { .. } => {}
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
