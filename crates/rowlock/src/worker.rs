//! The worker: the loop claim → handle → settle. Only this file composes the operations.
//!
//! Three parts run concurrently: the claimer, the handlers' tasks and the settler on the caller's runtime, and the
//! watch (heartbeats, recovery, time limits) on a separate thread.

mod batch;
pub(crate) mod breaker;
mod claimer;
mod crew;
mod hooks;
pub(crate) mod leased;
mod leases;
pub(crate) mod line;
mod relay;
pub(crate) mod running;
pub(crate) mod settings;
pub(crate) mod settler;
pub(crate) mod shared;
pub(crate) mod turnover;
mod watch;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    running::Running,
    settings::{Settings, check_timing, declared},
};
use crate::{
    error::{Error, Result, chain, code_of},
    event::{Counters, Event},
    handle::{Handler, atomic::Handler as Bound},
    job::{check_name, number},
    lease::WorkerId,
    retention::{Horizon, Retention},
    root::{Backend, Rowlock},
    store::{Store, Timing},
};

/// Connections for handlers unless set.
const CONNECTIONS_MAX: usize = 20;

/// How long a worker waits at its start for a database that does not answer or is not ready.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// What runs beside a worker.
type Companion<DB> = Box<dyn FnOnce(Rowlock<DB>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A worker process that is being configured: queues, handlers, state, timing. `run_until` runs it.
pub struct Worker<A, DB: Backend> {
    rowlock: Rowlock<DB>,
    state: Arc<A>,
    queues: Vec<(String, usize)>,
    handlers: Vec<Bound<DB>>,
    settings: Settings,
    prefetch: Option<usize>,
    connections: Option<usize>,
    listen: bool,
    companions: Vec<Companion<DB>>,
}

crate::debug::debug_fields!([A, DB: Backend] Worker<A, DB>, "Worker", queues, settings, prefetch, connections);

impl<DB: Backend> Worker<(), DB> {
    /// A worker on this database, without state.
    pub fn new(rowlock: &Rowlock<DB>) -> Worker<(), DB> {
        Worker {
            rowlock: rowlock.clone(),
            state: Arc::new(()),
            queues: Vec::new(),
            handlers: Vec::new(),
            settings: Settings::new(Duration::from_secs(15)),
            prefetch: None,
            connections: None,
            listen: true,
            companions: Vec::new(),
        }
    }

    /// What every handler can reach through its context. Set the state before the handlers, because their types depend
    /// on it.
    pub fn state<A: Send + Sync + 'static>(self, state: A) -> Worker<A, DB> {
        Worker {
            state: Arc::new(state),
            rowlock: self.rowlock,
            queues: self.queues,
            // Handlers registered without a state keep working: theirs is captured already.
            handlers: self.handlers,
            settings: self.settings,
            prefetch: self.prefetch,
            connections: self.connections,
            listen: self.listen,
            companions: self.companions,
        }
    }
}

impl<A: Send + Sync + 'static, DB: Backend> Worker<A, DB> {
    /// Serves this queue with at most this many handlers at the same time.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: usize) -> Self {
        self.queues.push((queue.into(), concurrency));
        self
    }

    /// Serves the handler's kind with it: `worker.handle(atomic(greet).backoff(…))`. See [`atomic`](crate::atomic) and
    /// [`staged`](crate::staged).
    pub fn handle<T>(mut self, handler: Handler<A, DB, T>) -> Self {
        let (handler, breakers) = handler.bind(self.state.clone());
        self.handlers.push(handler);
        self.settings.breakers.extend(breakers);
        self
    }

    /// A name for people; it need not be unique, and has no effect.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// How long a silent worker keeps its jobs (15 s unless set; 2 s to 1 h).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long handlers may go on after the stop (30 s unless set).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long history, cases and keys are kept. A worker refuses to start if its keys would be removed before their
    /// operations are over; see [`Retention`].
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How many jobs per queue to claim ahead of free slots. Unless set, as many as its handlers finish in a tenth of a
    /// second, at most 1000: enough to keep the slots busy, but few that another worker could start sooner.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.prefetch = Some(jobs);
        self
    }

    /// How many connections handlers may use at the same time (as many as there are handlers, at most 20, unless set).
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Finds jobs by polling only, without a connection that listens for notifications.
    pub fn poll_only(mut self) -> Self {
        self.listen = false;
        self
    }

    /// Calls the listener for every event, after the event's commit. Keep it quick: it runs on the worker's tasks.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.listen(listener);
        self
    }

    /// Runs this on a task beside the worker, from when the worker starts to claim until it has stopped, then drops it.
    /// Use it to inspect the queues from time to time, for example. It gets a handle on the worker's own connections.
    pub fn alongside<F, Fut>(mut self, companion: F) -> Self
    where
        F: FnOnce(Rowlock<DB>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.companions
            .push(Box::new(move |rowlock| Box::pin(companion(rowlock))));
        self
    }

    /// Running totals; keep the handle, the worker is consumed by running it.
    pub fn counters(&self) -> Arc<Counters> {
        self.settings.counters.clone()
    }

    /// Runs until `stop` resolves, then shuts down gracefully: claims stop, unstarted jobs are released without using
    /// an attempt, running handlers are notified and get the grace period, and after-commit hooks get the rest of it.
    ///
    /// Once started it does not fail: it survives any database outage and goes on when the database is back.
    ///
    /// # Errors
    /// Before it starts: contradictory settings, a schema that does not fit, or an unreachable database.
    ///
    /// Cancel safety: if dropped, its handlers are dropped with it and other workers recover their jobs after the
    /// lease.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let timing = self.settings.timing();
        self.check(timing)?;
        let concurrency: usize = self.queues.iter().map(|(_, n)| *n).sum();
        let connections = self
            .connections
            .unwrap_or_else(|| concurrency.clamp(1, CONNECTIONS_MAX));
        if connections < concurrency {
            tracing::info!(
                connections,
                concurrency,
                "fewer connections than handlers; atomic handlers wait for a connection"
            );
        }
        let rowlock = self.rowlock.for_worker(timing, connections)?;
        patiently(|| rowlock.check_schema()).await?;
        let names = self.names();
        let mut worker = WorkerId::random();
        patiently(|| {
            // A new id for each try: the previous id may have been registered although its reply was lost.
            worker = WorkerId::random();
            rowlock
                .store()
                .register(worker, &self.settings.name, self.settings.lease, &names)
        })
        .await?;
        let prepared = self.settings.prepare(&rowlock).await?;
        let queues: Vec<String> = self.queues.iter().map(|(queue, _)| queue.clone()).collect();
        let kinds: Vec<String> = self.handlers.iter().map(|handler| handler.kind.to_string()).collect();
        let running = Running::on_queues(self, rowlock, worker, prepared)?;
        tracing::info!(%worker, queues = queues.join(" "), kinds = kinds.join(" "), "worker started");
        stop.await;
        running.stop().await;
        tracing::info!(%worker, "worker stopped");
        Ok(())
    }

    /// Every queue and kind that it serves, by its number.
    fn names(&self) -> Vec<(i64, String)> {
        let queues = self.queues.iter().map(|(name, _)| name.clone());
        let kinds = self.handlers.iter().flat_map(|handler| {
            let versions = 1..=handler.version;
            versions.map(|version| format!("{}@{version}", handler.kind))
        });
        queues.chain(kinds).map(|name| (number(&name), name)).collect()
    }

    fn check(&self, timing: Timing) -> Result<()> {
        check_timing(timing)?;
        let handlers = self.handlers.iter();
        self.settings
            .retention
            .check(handlers.map(|h| Horizon::of(&h.kind, h.attempts_max, h.backoff, h.time_limit)))?;
        if self.queues.is_empty() || self.handlers.is_empty() {
            return Err(Error::Config(
                "the worker has no queue or no handler; add .queue(…) and .handle(…)".into(),
            ));
        }
        if self.prefetch.is_some_and(|jobs| jobs > 10_000) {
            return Err(Error::Config("prefetch: out of range (at most 10000 jobs)".into()));
        }
        for (i, (queue, concurrency)) in self.queues.iter().enumerate() {
            check_name("queue", queue)?;
            if *concurrency == 0 || *concurrency > 10_000 {
                return Err(Error::Config(format!(
                    "queue {queue:?}: concurrency {concurrency} is out of range (1 to 10000)"
                )));
            }
            if self.queues[..i].iter().any(|(other, _)| other == queue) {
                return Err(Error::Config(format!("queue {queue:?} is added twice; remove one")));
            }
        }
        declared(&self.settings.breakers)?;
        for (i, handler) in self.handlers.iter().enumerate() {
            check_name("kind", &handler.kind)?;
            if handler.version < 1 {
                let (kind, version) = (&handler.kind, handler.version);
                return Err(Error::Config(format!(
                    "kind {kind:?}: version {version} is out of range (1 or more)"
                )));
            }
            if let Some(problem) = handler.batch.problem(timing.lease) {
                return Err(Error::Config(format!("kind {:?}: {problem}", handler.kind)));
            }
            if self.handlers[..i].iter().any(|other| other.kind == handler.kind) {
                return Err(Error::Config(format!(
                    "kind {:?} has two handlers; remove one",
                    handler.kind
                )));
            }
        }
        Ok(())
    }
}

/// Tries to start again while the connection breaks or the database is away for a moment. Gives up if the database
/// stays away or refuses.
pub(crate) async fn patiently<F: Future<Output = Result<()>>>(mut start: impl FnMut() -> F) -> Result<()> {
    const TRIES: u32 = 5;
    let (began, mut tries, mut wait) = (Instant::now(), 1, Duration::from_millis(200));
    loop {
        match start().await {
            Err(Error::Database { doing, source })
                if tries < TRIES || (is_passing(&source) && began.elapsed() < START_PATIENCE) =>
            {
                tracing::warn!("{doing} failed at startup, retrying: {}", chain(&source));
                tokio::time::sleep(wait).await;
                tries += 1;
                wait = (wait * 5 / 4).min(Duration::from_secs(1));
            }
            result => return result,
        }
    }
}

/// Whether there is no answer, or the server is starting, stopping or out of memory, disk or connections.
fn is_passing(error: &sqlx::Error) -> bool {
    let code = code_of(error).unwrap_or_default();
    matches!(error, sqlx::Error::Io(_))
        || ["08", "53", "57P"].iter().any(|class| code.starts_with(class))
        || ["5", "13"].contains(&code.as_str())
}
