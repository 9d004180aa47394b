//! What a peer program has to say about itself.

use std::future::Future;
use std::ops::Range;

use anyhow::Result;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Decodes its payload, counts, succeeds.
    Noop,
    /// One update and one insert, committed together.
    Book,
    /// Prints that it started, then sleeps an hour.
    Stuck,
}

/// What a worker (or its producers) should be tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// Throughput of jobs that do nothing: drain, life, hold, enqueue.
    Noop,
    /// Throughput of one business transaction per job.
    Book,
    /// Latency of an idle worker that is woken by the database.
    Pickup,
    /// Latency of an idle worker that may only poll.
    PollOnly,
    /// As the documentation's first example has it, nothing tuned.
    Defaults,
}

#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub kind: Kind,
    /// A book handler also enqueues one job of kind `after`, which no worker serves.
    pub next: bool,
    pub tuning: Tuning,
}

/// How bulk enqueue is fastest: so many producers, each putting so many jobs per call.
#[derive(Clone, Copy, Debug)]
pub struct Producers {
    pub count: usize,
    pub chunk: usize,
}

pub trait Peer: Send + Sync + Sized + 'static {
    /// Keeps the worker running until it is dropped.
    type Running: Send;

    /// Name, version, settings and the three properties of the protocol's `about`.
    fn about() -> Value;

    fn setup(url: &str) -> impl Future<Output = Result<()>>;

    /// Connections are open when this returns.
    fn connect(url: &str, tuning: Tuning) -> impl Future<Output = Result<Self>> + Send;

    fn producers(&self) -> Producers;

    /// Enqueues the jobs with these numbers by one call of the peer's API; committed when it returns.
    fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> impl Future<Output = Result<()>> + Send;

    /// Starts a worker; its handlers report to `handled` or `stuck_forever`.
    fn start(&self, work: Work) -> impl Future<Output = Result<Self::Running>> + Send;

    /// How many of the `total` jobs put are not durably completed (or any number above zero while some are not).
    fn left(&self, total: u64) -> impl Future<Output = Result<i64>> + Send;

    /// Why this peer cannot be tuned like that, if it cannot.
    fn cannot(_: Tuning) -> Option<&'static str> {
        None
    }
}
