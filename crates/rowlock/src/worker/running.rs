//! A running worker: its parts, how they start and in which order they stop.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Worker,
    breaker::{self, Breakers},
    claimer::{self, Claimer},
    crew::Crew,
    leases::{JobShared, Leases},
    settler::{self, ToSettle},
    shared::{Claims, Shared},
    turnover::Turnover,
    watch,
};
use crate::{
    attempt::hand::{Cut, Held},
    claim::Planner,
    error::Result,
    handle::atomic::Handler,
    lease::WorkerId,
    pause::KnownPauses,
    root::{Backend, Rowlock},
};

/// A running worker, on queues or on a user's table.
pub(crate) struct Running<C: Claims> {
    shared: Arc<Shared<C>>,
    tasks: TaskTracker,
    claimer: JoinHandle<()>,
    settler: Option<Settler<C>>,
    watch_stop: CancellationToken,
}

/// The task that writes ends which have no transaction. It ends when its senders are gone and everything is written.
struct Settler<C: Claims> {
    task: JoinHandle<()>,
    sender: mpsc::UnboundedSender<ToSettle<C>>,
}

impl<C: Claims> Drop for Running<C> {
    fn drop(&mut self) {
        // Dropped without `stop`: claiming and renewing must stop, because the handlers are gone.
        self.shared.stopping.cancel();
        C::stop_all(&self.shared, Cut::Stopped);
        self.shared.gone.cancel();
        self.watch_stop.cancel();
    }
}

impl<C: Claims> Running<C> {
    /// Starts the watch and this claimer, whose handlers run on these tasks.
    pub(crate) fn start<F>(shared: Arc<Shared<C>>, tasks: TaskTracker, claimer: F) -> Result<Running<C>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let watch_stop = CancellationToken::new();
        watch::start(shared.clone(), watch_stop.clone())?;
        Ok(Running {
            shared,
            tasks,
            claimer: tokio::spawn(claimer),
            settler: None,
            watch_stop,
        })
    }

    pub(crate) async fn stop(mut self) {
        let shared = self.shared.clone();
        let (grace, settle_limit) = (shared.settings.grace, shared.timing.lease);
        shared.stopping.cancel();
        // None: later than the clock can represent.
        let grace_ends = tokio::time::Instant::now().checked_add(grace);
        // The claimer may be in the middle of a claim; its jobs are released unstarted.
        let _ = tokio::time::timeout(settle_limit, &mut self.claimer).await;
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            for job in shared.in_hand() {
                job.hand().stop(Cut::Stopped);
            }
            let _ = tokio::time::timeout(settle_limit / 3, self.tasks.wait()).await;
        }
        if let Some(Settler { task, sender }) = self.settler.take() {
            drop(sender);
            if tokio::time::timeout(settle_limit, task).await.is_err() {
                tracing::warn!(
                    jobs = shared.count(|_| true),
                    "some jobs could not be settled before the stop; other workers recover them after the lease"
                );
            }
        }
        shared.hooks.close();
        let hooks = shared.hooks.wait();
        let in_time = match grace_ends {
            Some(at) => tokio::time::timeout_at(at, hooks).await.is_ok(),
            None => {
                hooks.await;
                true
            }
        };
        if !in_time {
            let jobs = shared.hooks.len();
            tracing::warn!(
                jobs,
                "after-commit hooks ran longer than the grace period and were dropped"
            );
        }
        // Otherwise the watch would mistake the sign-off for a death and register again.
        self.watch_stop.cancel();
        C::leave(&shared).await;
    }
}

/// What to claim, by the worker's queues and kinds.
fn planner<DB: Backend>(queues: &[(String, usize)], handlers: &[Handler<DB>], shared: &JobShared) -> Planner {
    let kinds: Vec<(&str, i32)> = handlers.iter().map(|h| (&*h.kind, h.version)).collect();
    let mut planner = Planner::new(queues.iter().map(|(q, _)| q.as_str()), &kinds);
    for handler in handlers.iter().filter(|h| !h.breakers.is_empty()) {
        planner.bind(&handler.kind, &handler.breakers, &shared.breakers.known);
    }
    planner
}

impl Running<Leases> {
    /// Starts a worker on queues, which is registered under this id.
    pub(crate) fn on_queues<A: Send + Sync + 'static, DB: Backend>(
        worker: Worker<A, DB>,
        rowlock: Rowlock<DB>,
        id: WorkerId,
        (pauses, breakers): (KnownPauses, Breakers),
    ) -> Result<Running<Leases>> {
        let (news, incoming) = mpsc::unbounded_channel();
        let leases = Leases::new(Arc::new(rowlock.store().clone()), id, news);
        let shared = Shared::new::<DB>(leases, worker.settings, pauses, breakers);
        let (sender, ends) = mpsc::unbounded_channel();
        let settler = tokio::spawn(settler::run(shared.clone(), ends));
        tokio::spawn(breaker::report_all(shared.clone(), incoming));
        let tasks = TaskTracker::new();
        let planner = planner(&worker.queues, &worker.handlers, &shared);
        let turnover = |(queue, slots): &(String, usize)| {
            let jobs = batch_in(queue, &worker.queues, &worker.handlers);
            let names = (&**queue, &*shared.settings.name);
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
            sender.clone(),
            tasks.clone(),
        );
        if worker.listen {
            let (listening, gone) = (listen(shared.clone()), shared.gone.clone());
            tokio::spawn(async move { gone.run_until_cancelled(listening).await });
        }
        let claimer = Claimer {
            shared: shared.clone(),
            planner,
            queues,
            dispatch: Box::new(move |jobs, session, tried| crew.dispatch(jobs, session, tried)),
            state: claimer::State::new(),
        };
        let mut running = Running::start(shared, tasks, claimer.run())?;
        running.settler = Some(Settler { task: settler, sender });
        Ok(running)
    }
}

/// How many jobs of this queue may share a slot: for a kind whose jobs go to this queue, or may go to any queue of this
/// worker.
fn batch_in<DB: Backend>(queue: &str, queues: &[(String, usize)], handlers: &[Handler<DB>]) -> usize {
    let served = |name: &str| queues.iter().any(|(queue, _)| queue == name);
    let here = handlers.iter().filter(|h| h.queue == queue || !served(h.queue));
    here.map(|h| h.batch.jobs_max).max().unwrap_or(1)
}

/// Receives notifications and passes them on; after every loss of the connection the claimer polls once.
async fn listen(shared: Arc<JobShared>) {
    while !shared.stopping.is_cancelled() {
        match shared.store.wakes().await {
            Ok(mut wakes) => {
                shared.woken.notify_one();
                loop {
                    tokio::select! {
                        heard = wakes.next() => match heard {
                            Ok(_) => shared.woken.notify_one(),
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
