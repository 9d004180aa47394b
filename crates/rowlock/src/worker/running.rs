//! A worker at work: its parts, how they start and in which order they stop.

use std::{sync::Arc, time::Duration};

use tokio::sync::{
    Notify,
    mpsc::{self, UnboundedReceiver},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Worker,
    breaker::{Breakers, Said, Teller},
    claimer::{self, Claimer},
    crew::Crew,
    hand::Shared,
    settler::{self, ToSettle},
    turnover::Turnover,
    watch,
};
use crate::{
    attempt::hand::Cut,
    claim::Planner,
    error::{Error, Result},
    handle::atomic::Handler,
    lease::WorkerId,
    pause::Known,
    root::{Backend, Rowlock},
    store::Timing,
};

/// A worker at work.
pub(crate) struct Running {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    grace: Duration,
    claimer: tokio::task::JoinHandle<()>,
    listener: Option<tokio::task::JoinHandle<()>>,
    settler: tokio::task::JoinHandle<()>,
    settle: mpsc::UnboundedSender<ToSettle>,
    watch_stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped without `stop`: nothing may go on claiming or beating for handlers that are gone.
        self.shared.stopping.cancel();
        for session in self.shared.sessions() {
            session.end(Cut::Stopped);
        }
        self.shared.gone.cancel();
        self.watch_stop.cancel();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// What to ask for, by the worker's queues and kinds.
fn planner<DB: Backend>(queues: &[(String, usize)], handlers: &[Handler<DB>], shared: &Shared) -> Planner {
    let kinds: Vec<(&str, i32)> = handlers.iter().map(|h| (&*h.kind, h.version)).collect();
    let mut planner = Planner::new(queues.iter().map(|(q, _)| q.as_str()), &kinds);
    for handler in handlers.iter().filter(|h| !h.breakers.is_empty()) {
        planner.bind(&handler.kind, &handler.breakers, &shared.breakers.known);
    }
    planner
}

impl Running {
    pub(crate) fn start<A: Send + Sync + 'static, DB: Backend>(
        worker: Worker<A, DB>,
        rowlock: Rowlock<DB>,
        timing: Timing,
        id: WorkerId,
        pauses: Known,
        (breakers, said): (Breakers, UnboundedReceiver<Said>),
    ) -> Result<Running> {
        let shared = Shared::new(
            Arc::new(rowlock.store().clone()),
            timing,
            worker.name,
            DB::EXCLUSIVE.then_some(timing.lease / 3),
            worker.retention,
            worker.counters,
            worker.listeners,
            id,
            pauses,
            breakers,
        );
        let watch_stop = CancellationToken::new();
        let woken = Arc::new(Notify::new());
        watch::start(shared.clone(), woken.clone(), watch_stop.clone())
            .map_err(|e| Error::Config(format!("could not start the watch thread: {e}")))?;
        let (settle, rx) = mpsc::unbounded_channel();
        let settler = tokio::spawn(settler::run(shared.clone(), rx, shared.gone.clone()));
        tokio::spawn(Teller::of(&shared, woken.clone()).run(said));
        let tasks = TaskTracker::new();
        let planner = planner(&worker.queues, &worker.handlers, &shared);
        let turnover = |(queue, slots): &(String, usize)| {
            let (jobs, names) = (
                batch_in(queue, &worker.queues, &worker.handlers),
                (&**queue, &*shared.name),
            );
            Arc::new(Turnover::new(names, *slots, jobs, worker.prefetch))
        };
        let queues: Vec<Arc<Turnover>> = worker.queues.iter().map(turnover).collect();
        for companion in worker.companions {
            let (companion, gone) = (companion(rowlock.clone()), shared.gone.clone());
            tokio::spawn(async move { gone.run_until_cancelled(companion).await });
        }
        let crew = Crew::new(
            &shared,
            rowlock,
            worker.handlers,
            &queues,
            settle.clone(),
            tasks.clone(),
        );
        let listens = || tokio::spawn(listen(shared.clone(), woken.clone()));
        let listener = worker.listen.then(listens);
        let claimer = Claimer {
            shared: shared.clone(),
            planner,
            queues,
            dispatch: Box::new(move |jobs, session, tried| crew.dispatch(jobs, session, tried)),
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
            watch_stop,
        })
    }

    pub(crate) async fn stop(mut self) {
        self.shared.stopping.cancel();
        // None: later than a clock can say.
        let grace_ends = tokio::time::Instant::now().checked_add(self.grace);
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
            tracing::warn!(
                jobs = self.shared.count(),
                "some jobs could not be settled before the stop; other workers recover them after the lease"
            );
        }
        self.shared.hooks.close();
        let hooks = self.shared.hooks.wait();
        let in_time = match grace_ends {
            Some(at) => tokio::time::timeout_at(at, hooks).await.is_ok(),
            None => {
                hooks.await;
                true
            }
        };
        if !in_time {
            let jobs = self.shared.hooks.len();
            tracing::warn!(
                jobs,
                "after-commit hooks ran longer than the grace period and were dropped"
            );
        }
        // The watch would take the goodbye for a death and register anew.
        self.watch_stop.cancel();
        let mut left = Ok(());
        for session in self.shared.sessions() {
            left = left.and(self.shared.store.leave(session.worker).await);
        }
        if let Err(error) = left {
            tracing::debug!(
                "could not unregister the worker, its row ends with its lease: {}",
                error.cause()
            );
        } else if let Err(error) = self.shared.store.forget_dead().await {
            tracing::debug!(
                "could not remove the worker's row, leaving it to recovery: {}",
                error.cause()
            );
        }
    }
}

/// How many jobs of this queue may share a slot: of a kind whose jobs go here, or may go to any queue of this worker.
fn batch_in<DB: Backend>(queue: &str, queues: &[(String, usize)], handlers: &[Handler<DB>]) -> usize {
    let served = |name: &str| queues.iter().any(|(queue, _)| queue == name);
    let here = handlers.iter().filter(|h| h.queue == queue || !served(h.queue));
    here.map(|h| h.batch.jobs_max).max().unwrap_or(1)
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
            Err(error) => tracing::debug!("could not listen for notifications, polling instead: {}", error.cause()),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
