//! Turns claimed jobs into running tasks, and their ends into settlements.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::{
    claimer::Places,
    hand::{Cut, InHand, Session, Shared},
    run::{self, Env, Finished},
    settler::{self, ToSettle},
};
use crate::{
    event::Event,
    handle::{Attempt, Fail, atomic::Handler},
    job::kind_no,
    lease::Claimed,
    root::{Backend, Rowlock},
    settle::Ending,
};

/// What turns claimed jobs into running tasks.
pub(crate) struct Crew<DB: Backend> {
    shared: Arc<Shared>,
    env: Arc<Env<DB>>,
    handlers: HashMap<i64, Arc<Handler<DB>>>,
    slots: HashMap<i64, Arc<Semaphore>>,
    settle: mpsc::UnboundedSender<ToSettle>,
    tasks: TaskTracker,
}

impl<DB: Backend> Crew<DB> {
    pub(crate) fn new(
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
            slots: places
                .iter()
                .map(|p| (p.queue_no, Arc::new(Semaphore::new(p.concurrency))))
                .collect(),
            settle,
            tasks,
        }
    }

    pub(crate) fn dispatch(&self, claimed: Claimed, session: &Arc<Session>) {
        let handler = self.handlers.get(&claimed.kind_no).cloned();
        let slots = self.slots.get(&claimed.queue_no).cloned();
        let (Some(handler), Some(slots)) = (handler, slots) else {
            // Only what was asked for comes back from a claim.
            tracing::error!(
                job = claimed.token.id,
                "claimed a job that this worker has no handler or queue for"
            );
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
