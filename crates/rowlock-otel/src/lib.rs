//! OpenTelemetry for Rowlock: metrics of a worker's events, metrics of its queues, and the trace context that jobs
//! carry.
//!
//! ```
//! use rowlock::sqlite::{Rowlock, Worker};
//! use rowlock_otel::{Measure, Telemetry};
//!
//! # fn main() -> rowlock::Result<()> {
//! rowlock_otel::install(); // jobs carry the current trace context from here on
//! let rowlock = Rowlock::open("sqlite:jobs.db")?;
//! let worker = Worker::new(&rowlock).queue("mail", 8).telemetry(Telemetry::new());
//! # drop(worker);
//! # Ok(()) }
//! ```
//!
//! An event is reported after its commit, so nothing is counted that did not happen. A worker that is killed may lose
//! what it has not exported, and never exports more than the database holds. This crate uses only the API of
//! OpenTelemetry. Your program chooses the SDK and the exporter, before it builds the worker.
//!
//! Attempts are shown by the span `queue.process` of `tracing`. A layer of `tracing-opentelemetry` makes spans of
//! OpenTelemetry of them, and after [`install`] each links to the span in which its job was enqueued.

mod events;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod sample;
mod trace;

use std::time::Duration;

use opentelemetry::{KeyValue, global, metrics::Meter};
use rowlock::{Backend, Event, Worker};

use self::events::Instruments;
pub use self::trace::install;

/// Which names metrics have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// `queue.claimed`, `queue.processed` and their like.
    Seed,
    /// The names of the semantic conventions for messaging, where they have one: `messaging.client.consumed.messages`
    /// and `messaging.process.duration`. The other metrics keep their names.
    Semconv,
    /// Both, one beside the other.
    #[default]
    Both,
}

/// What a worker measures, for [`Measure::telemetry`].
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

    /// How often depth, age and breakers are read from the database: every 15 s unless set, and less often if a read
    /// takes more than a fiftieth of that. Every worker with this setting reads them; take the largest of the reported
    /// values, not the sum.
    pub fn sample_every(mut self, every: Duration) -> Telemetry {
        self.every = every.max(Duration::from_millis(100));
        self
    }

    /// Counts events, and reads nothing from the database. For [`Worker::on_event`], and for the `on_event` of a worker
    /// on an adopted table. The queue of its metrics is then the table's name.
    pub fn listener(&self) -> impl Fn(&Event) + Send + Sync + use<> {
        let instruments = Instruments::new(&self.meter, self.names);
        move |event| instruments.hear(event)
    }
}

/// Adds [`Measure::telemetry`] to workers.
pub trait Measure: Sized {
    /// Measures the worker's events, and its queues while it runs, with OpenTelemetry.
    fn telemetry(self, telemetry: Telemetry) -> Self;
}

impl<A: Send + Sync + 'static, DB: Backend> Measure for Worker<A, DB> {
    fn telemetry(self, telemetry: Telemetry) -> Self {
        self.on_event(telemetry.listener())
            .alongside(move |rowlock| telemetry.sample(rowlock))
    }
}

fn of_lane(queue: &str, kind: &str) -> [KeyValue; 2] {
    [
        KeyValue::new("queue", queue.to_owned()),
        KeyValue::new("kind", kind.to_owned()),
    ]
}
