//! The worker: the loop claim → handle → settle, and the only place that composes the verbs.
//!
//! Three parts run beside each other: the claimer, the handlers' tasks and the settler on the caller's runtime, and the
//! watch (beats, recovery, time limits) on a thread of its own.

mod claimer;
pub(crate) mod hand;
pub(crate) mod run;
mod settler;
mod watch;

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    claimer::{Claimer, Places},
    hand::{Cut, InHand, Session, Shared},
    run::{Env, Finished},
    settler::ToSettle,
};
use crate::{
    backoff::Backoff,
    claim::Planner,
    error::{Error, Result},
    event::{Counters, Event},
    handle::{Attempt, Ctx, Fail, Outcome, Staged, Tx, atomic::Handler},
    job::{Job, check_name, kind_no, queue_no},
    lease::{Claimed, WorkerId},
    root::{Backend, Rowlock},
    settle::Ending,
    store::{Store, Timing},
};

/// Connections for handlers unless told otherwise.
const CONNECTIONS_MAX: usize = 20;

/// A worker process in the making: queues, handlers, state, timing. `run_until` runs it.
pub struct Worker<A, DB: Backend> {
    rowlock: Rowlock<DB>,
    state: Arc<A>,
    queues: Vec<(String, usize)>,
    handlers: Vec<Handler<DB>>,
    name: String,
    lease: Duration,
    grace: Duration,
    retention: Duration,
    prefetch: Option<usize>,
    connections: Option<usize>,
    listen: bool,
    counters: Arc<Counters>,
    listeners: Vec<Box<dyn Fn(&Event) + Send + Sync>>,
}

impl<DB: Backend> Worker<(), DB> {
    /// A worker on this database, without state.
    pub fn new(rowlock: &Rowlock<DB>) -> Worker<(), DB> {
        Worker {
            rowlock: rowlock.clone(),
            state: Arc::new(()),
            queues: Vec::new(),
            handlers: Vec::new(),
            name: format!("pid {}", std::process::id()),
            lease: Duration::from_secs(15),
            grace: Duration::from_secs(30),
            retention: Duration::from_secs(14 * 24 * 3600),
            prefetch: None,
            connections: None,
            listen: true,
            counters: Arc::default(),
            listeners: Vec::new(),
        }
    }

    /// What every handler can reach through its context. Set it before the handlers: they are typed by it.
    pub fn state<A: Send + Sync + 'static>(self, state: A) -> Worker<A, DB> {
        Worker {
            state: Arc::new(state),
            rowlock: self.rowlock,
            queues: self.queues,
            // Handlers registered for no state keep working: theirs is captured already.
            handlers: self.handlers,
            name: self.name,
            lease: self.lease,
            grace: self.grace,
            retention: self.retention,
            prefetch: self.prefetch,
            connections: self.connections,
            listen: self.listen,
            counters: self.counters,
            listeners: self.listeners,
        }
    }
}

impl<A: Send + Sync + 'static, DB: Backend> Worker<A, DB> {
    /// Serves this queue with at most so many handlers at once.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: usize) -> Self {
        self.queues.push((queue.into(), concurrency));
        self
    }

    /// Runs jobs of this kind in a transaction that commits with their outcome.
    pub fn atomic<J, F, Fut>(mut self, handler: F) -> Self
    where
        J: Job,
        F: Fn(Ctx<A, DB>, J, Tx<DB>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        self.handlers.push(Handler::atomic(self.state.clone(), handler));
        self
    }

    /// Runs jobs of this kind in stages: look, go outside, settle.
    pub fn staged<J, F, Fut>(mut self, handler: F) -> Self
    where
        J: Job,
        F: Fn(Staged<A, DB>, J) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        self.handlers.push(Handler::staged(self.state.clone(), handler));
        self
    }

    /// The delay between attempts of the handler added last.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        if let Some(handler) = self.handlers.last_mut() {
            handler.backoff = backoff;
        }
        self
    }

    /// A name for people; it need not be unique, and decides nothing.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long a silent worker keeps its jobs (15 s unless set; 2 s to 1 h).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long handlers may go on after the stop (30 s unless set).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long the history of finished jobs is kept (14 days unless set; at least an hour).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// How many jobs per queue to claim ahead of free slots (as many as its concurrency, at most 100, unless set).
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.prefetch = Some(jobs);
        self
    }

    /// How many connections handlers may use at once (as many as there are handlers, at most 20, unless set).
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Finds jobs by polling alone, without a connection that listens for wakes.
    pub fn poll_only(mut self) -> Self {
        self.listen = false;
        self
    }

    /// Calls this for every event, after the commit that made it so. Keep it quick: it runs on the worker's tasks.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Running totals; keep the handle, the worker is consumed by running it.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Runs until `stop` resolves, then stops in good order: no more claims, unstarted jobs are released without burning
    /// an attempt, running handlers are told and given the grace period.
    ///
    /// Once started it does not fail: it survives any database outage and goes on when the database is back.
    ///
    /// # Errors
    /// Before it starts: a contradiction in its settings, a schema that does not fit, a database out of reach.
    ///
    /// Cancel safety: dropped, its handlers are dropped with it and their jobs are recovered by others after the lease.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let timing = Timing::of_lease(self.lease);
        self.check(timing)?;
        let concurrency: usize = self.queues.iter().map(|(_, n)| *n).sum();
        let connections = self.connections.unwrap_or_else(|| concurrency.clamp(1, CONNECTIONS_MAX));
        if connections < concurrency {
            tracing::info!(connections, concurrency, "fewer connections than handlers; atomic handlers take turns");
        }
        let rowlock = self.rowlock.for_worker(timing, connections)?;
        rowlock.check_schema().await?;
        let worker = WorkerId::random();
        rowlock.store().register(worker, &self.name, self.lease).await?;
        let running = Running::start(self, rowlock, timing, worker)?;
        stop.await;
        running.stop().await;
        Ok(())
    }

    fn check(&self, timing: Timing) -> Result<()> {
        watch::check_timing(timing)?;
        if self.retention < Duration::from_secs(3600) {
            return Err(Error::Config("retention: history must be kept for an hour at least".into()));
        }
        if self.queues.is_empty() || self.handlers.is_empty() {
            return Err(Error::Config("a worker needs a queue and a handler; add .queue(…) and .atomic(…) or .staged(…)".into()));
        }
        for (i, (queue, concurrency)) in self.queues.iter().enumerate() {
            check_name("queue", queue)?;
            if *concurrency == 0 || *concurrency > 10_000 {
                return Err(Error::Config(format!("queue {queue}: concurrency {concurrency} is not in 1..=10000")));
            }
            if self.queues[..i].iter().any(|(other, _)| other == queue) {
                return Err(Error::Config(format!("queue {queue} is listed twice")));
            }
        }
        for (i, handler) in self.handlers.iter().enumerate() {
            check_name("kind", handler.kind)?;
            if self.handlers[..i].iter().any(|other| other.kind == handler.kind) {
                return Err(Error::Config(format!("kind {} has two handlers", handler.kind)));
            }
        }
        Ok(())
    }
}

/// A worker at work.
struct Running {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    grace: Duration,
    claimer: tokio::task::JoinHandle<()>,
    listener: Option<tokio::task::JoinHandle<()>>,
    settler: tokio::task::JoinHandle<()>,
    settle: mpsc::UnboundedSender<ToSettle>,
    give_up: CancellationToken,
    watch_stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped without `stop`: nothing may go on claiming or beating for handlers that are gone.
        self.shared.stopping.cancel();
        self.shared.session().end(Cut::Stopped);
        self.give_up.cancel();
        self.watch_stop.cancel();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

impl Running {
    fn start<A: Send + Sync + 'static, DB: Backend>(
        worker: Worker<A, DB>,
        rowlock: Rowlock<DB>,
        timing: Timing,
        id: WorkerId,
    ) -> Result<Running> {
        let store: Arc<dyn Store> = Arc::new(rowlock.store().clone());
        let shared = Shared::new(
            store,
            timing,
            worker.name,
            DB::cap(timing),
            worker.retention,
            worker.counters,
            worker.listeners,
            id,
        );
        let watch_stop = CancellationToken::new();
        watch::start(shared.clone(), watch_stop.clone())
            .map_err(|e| Error::Config(format!("the watch thread could not start: {e}")))?;
        let (settle, rx) = mpsc::unbounded_channel();
        let give_up = CancellationToken::new();
        let settler = tokio::spawn(settler::run(shared.clone(), rx, give_up.clone()));
        let tasks = TaskTracker::new();
        let kinds: Vec<(&str, i32)> = worker.handlers.iter().map(|h| (h.kind, h.version)).collect();
        let planner = Planner::new(worker.queues.iter().map(|(q, _)| q.as_str()), &kinds);
        let places = worker.queues.iter().map(|(queue, concurrency)| Places {
            queue_no: queue_no(queue),
            concurrency: *concurrency,
            prefetch: worker.prefetch.unwrap_or((*concurrency).min(100)),
        });
        let places: Vec<Places> = places.collect();
        let crew = Crew::new(&shared, rowlock, worker.handlers, &places, settle.clone(), tasks.clone());
        let woken = Arc::new(Notify::new());
        let listener = worker.listen.then(|| tokio::spawn(listen(shared.clone(), woken.clone())));
        let claimer = Claimer {
            shared: shared.clone(),
            planner,
            places,
            dispatch: Box::new(move |claimed, session| crew.dispatch(claimed, session)),
            woken,
            state: claimer::State::new(),
        };
        Ok(Running {
            claimer: tokio::spawn(claimer.run()),
            shared,
            tasks,
            grace: worker.grace,
            listener,
            settler,
            settle,
            give_up,
            watch_stop,
        })
    }

    async fn stop(mut self) {
        self.shared.stopping.cancel();
        let settle_limit = self.shared.timing.lease;
        // The claimer may be in the middle of a claim; what it brings is released unstarted.
        let _ = tokio::time::timeout(settle_limit, &mut self.claimer).await;
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            for job in self.shared.in_hand() {
                job.end(Cut::Stopped);
            }
            let _ = tokio::time::timeout(settle_limit / 3, self.tasks.wait()).await;
        }
        // Without its senders the settler ends when everything is written.
        self.settle = mpsc::unbounded_channel().0;
        if tokio::time::timeout(settle_limit, &mut self.settler).await.is_err() {
            tracing::warn!(jobs = self.shared.count(), "not everything could be settled; others recover it after the lease");
        }
        let worker = self.shared.session().worker;
        if let Err(error) = self.shared.store.leave(worker).await {
            tracing::debug!(%error, "leaving failed; the worker's row ends with its lease");
        }
    }
}

/// Hears wakes and passes them on; after every loss of the connection the claimer polls once.
async fn listen(shared: Arc<Shared>, woken: Arc<Notify>) {
    while !shared.stopping.is_cancelled() {
        match shared.store.wakes().await {
            Ok(mut wakes) => {
                woken.notify_one();
                loop {
                    tokio::select! {
                        heard = wakes.next() => match heard {
                            Ok(_) => woken.notify_one(),
                            Err(_) => break,
                        },
                        () = shared.stopping.cancelled() => return,
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "listening for wakes failed; polling meanwhile"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What turns claimed jobs into running tasks.
struct Crew<DB: Backend> {
    shared: Arc<Shared>,
    env: Arc<Env<DB>>,
    handlers: HashMap<i64, Arc<Handler<DB>>>,
    slots: HashMap<i64, Arc<Semaphore>>,
    settle: mpsc::UnboundedSender<ToSettle>,
    tasks: TaskTracker,
}

impl<DB: Backend> Crew<DB> {
    fn new(
        shared: &Arc<Shared>,
        rowlock: Rowlock<DB>,
        handlers: Vec<Handler<DB>>,
        places: &[Places],
        settle: mpsc::UnboundedSender<ToSettle>,
        tasks: TaskTracker,
    ) -> Crew<DB> {
        let mut by_kind = HashMap::new();
        for handler in handlers {
            let handler = Arc::new(handler);
            for version in 1..=handler.version {
                by_kind.insert(kind_no(handler.kind, version), handler.clone());
            }
        }
        let events = shared.clone();
        Crew {
            shared: shared.clone(),
            env: Arc::new(Env {
                rowlock,
                timing: shared.timing,
                resolved: Box::new(move |token, committed| {
                    events.emit(Event::CommitResolved {
                        id: token.id,
                        committed,
                    });
                }),
            }),
            handlers: by_kind,
            slots: places.iter().map(|p| (p.queue_no, Arc::new(Semaphore::new(p.concurrency)))).collect(),
            settle,
            tasks,
        }
    }

    fn dispatch(&self, claimed: Claimed, session: &Arc<Session>) {
        let handler = self.handlers.get(&claimed.kind_no).cloned();
        let slots = self.slots.get(&claimed.queue_no).cloned();
        let (Some(handler), Some(slots)) = (handler, slots) else {
            // Only what was asked for comes back from a claim.
            tracing::error!(job = claimed.token.id, "claimed a job that this worker has no handler or queue for");
            return;
        };
        let ending = Ending::of(&claimed, handler.backoff);
        let job = InHand::new(&claimed, ending, handler.time_limit, session.clone());
        self.shared.take(job.clone());
        let (shared, env, settle) = (self.shared.clone(), self.env.clone(), self.settle.clone());
        self.tasks.spawn(async move {
            let finished = attempt(&shared, &env, &handler, &claimed, &slots, &job).await;
            finish(&shared, finished, job, &settle);
        });
    }
}

async fn attempt<DB: Backend>(
    shared: &Shared,
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    slots: &Arc<Semaphore>,
    job: &Arc<InHand>,
) -> Finished {
    let release = |why| Finished::Settle {
        settlement: job.ending.released(why),
        already: false,
    };
    let _slot = tokio::select! {
        biased;
        () = shared.stopping.cancelled() => return release("worker stopped before it started"),
        () = job.cut.cancelled() => match job.why() {
            Some(Cut::DeclaredDead) => return Finished::LeaseLost,
            _ => return release("worker could not renew its lease before it started"),
        },
        slot = slots.clone().acquire_owned() => slot,
    };
    job.start();
    let attempt = Attempt::of(claimed, shared.stopping.clone());
    run::run(env, handler, claimed, attempt, job).await
}

/// Passes an attempt's end on to whoever writes it.
fn finish(shared: &Shared, finished: Finished, job: Arc<InHand>, settle: &mpsc::UnboundedSender<ToSettle>) {
    let (settlement, already) = match finished {
        Finished::Settled { ended, already, error } => return settler::settled(shared, &job, ended, already, error),
        Finished::LeaseLost => return settler::lost(shared, &job),
        Finished::Settle { settlement, already } => (Some(settlement), already),
        Finished::Cut => match job.why() {
            // The watch records it; the place is free when the body has ended, which is now.
            Some(Cut::TimeLimit) => return shared.freed.notify_one(),
            Some(Cut::DeclaredDead) | None => return settler::lost(shared, &job),
            Some(Cut::LeaseEnding) => {
                let why = "worker could not renew its lease in time; the handler was stopped";
                (job.ending.failed(Fail::retry(why)), false)
            }
            Some(Cut::Stopped) => {
                let why = "worker stopped before the handler finished";
                (job.ending.failed(Fail::retry_after(Duration::ZERO, why)), false)
            }
        },
    };
    let Some(settlement) = settlement else {
        return settler::lost(shared, &job);
    };
    let entry = ToSettle {
        settlement,
        already,
        job,
    };
    if settle.send(entry).is_err() {
        tracing::warn!("the worker has stopped; an attempt's end is left to recovery");
    }
}
