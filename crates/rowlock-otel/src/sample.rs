//! Metrics that are read from the database now and then while a worker runs.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Meter},
};
use rowlock::{
    Backend, Rowlock,
    breaker::{BreakerState, BreakerView},
    observe::{LaneStatus, Observe},
};

use crate::{Telemetry, of_lane};

/// Looking at the queues takes at most this share of the time.
const SAMPLE_SHARE: u32 = 50;

impl Telemetry {
    /// Reads the queues until it is dropped. The last values are dropped too, because callbacks stay with their meter
    /// for ever.
    pub(crate) async fn sample<DB: Backend>(self, rowlock: Rowlock<DB>) {
        let seen = Arc::new(Mutex::new(Look::default()));
        Seen(Arc::downgrade(&seen)).show(&self.meter, &rowlock);
        let observe = rowlock.observe();
        let mut wait = Duration::ZERO;
        loop {
            tokio::time::sleep(wait).await;
            let began = Instant::now();
            let looked = look(&observe).await;
            wait = match &looked {
                Ok(_) => self.every.max(began.elapsed() * SAMPLE_SHARE),
                // A failed read says nothing about how long a read takes.
                Err(_) => self.every,
            };
            let looked = looked.unwrap_or_else(|error| {
                tracing::debug!("could not read the queues for metrics, retrying: {}", error.cause());
                // No value is better than an old one.
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

async fn look(observe: &Observe) -> rowlock::Result<Look> {
    Ok(Look {
        lanes: observe.status().await?.lanes,
        breakers: observe.breakers().await?,
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
        let counts = rowlock.rollout_counter();
        meter
            .u64_observable_counter("queue.rollout_sides")
            .with_description("How often each side of a rollout was taken")
            .with_callback(move |counter| {
                for count in counts() {
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
            // A state of a newer library: it has no number here yet.
            _ => continue,
        };
        gauge.observe(state, &[KeyValue::new("dependency", breaker.name.clone())]);
    }
}
