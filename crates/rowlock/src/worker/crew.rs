//! Turns claimed jobs into running tasks, and their ends into settlements.

use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use super::{
    hand::{Cut, InHand, Session, Shared},
    run::{self, Env, Finished},
    settler::{self, ToSettle},
    turnover::Turnover,
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
    lines: HashMap<i64, Arc<Line<DB>>>,
    settle: mpsc::UnboundedSender<ToSettle>,
    tasks: TaskTracker,
}

impl<DB: Backend> Crew<DB> {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        rowlock: Rowlock<DB>,
        handlers: Vec<Handler<DB>>,
        queues: &[Arc<Turnover>],
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
        let (told, lease) = (shared.clone(), shared.clone());
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
                emit: Arc::new(move |event| told.emit(event)),
                held: Arc::new(move || !lease.lease_ending(Instant::now())),
            }),
            handlers: by_kind,
            lines: queues
                .iter()
                .map(|queue| (queue.queue_no, Line::new(queue.clone())))
                .collect(),
            settle,
            tasks,
        }
    }

    /// Puts jobs in line in the order they are to start, whatever order the claim returned them in.
    pub(crate) fn dispatch(&self, mut jobs: Vec<Claimed>, session: &Arc<Session>) {
        jobs.sort_by_key(|j| (j.priority, j.due_at, j.token.id));
        for claimed in jobs {
            self.line_up(claimed, session);
        }
    }

    fn line_up(&self, claimed: Claimed, session: &Arc<Session>) {
        let handler = self.handlers.get(&claimed.kind_no).cloned();
        let line = self.lines.get(&claimed.queue_no).cloned();
        let (Some(handler), Some(line)) = (handler, line) else {
            // Only what was asked for comes back from a claim.
            tracing::error!(
                job = claimed.token.id,
                "claimed a job that this worker has no handler or queue for"
            );
            return;
        };
        let ending = Ending::of(&claimed, handler.backoff);
        let job = InHand::new(
            &claimed,
            ending,
            handler.time_limit,
            line.queue.clone(),
            session.clone(),
        );
        self.shared.take(job.clone());
        line.push(Waiting { claimed, handler, job });
        let (shared, env, settle) = (self.shared.clone(), self.env.clone(), self.settle.clone());
        let session = session.clone();
        // One task per job, but whichever gets a slot first takes the job that is first in line.
        self.tasks.spawn(async move {
            let (finished, job) = attempt(&shared, &env, &line, &session).await;
            shared.body_over(&job);
            finish(&shared, finished, job, &settle);
        });
    }
}

/// A claimed job that waits for a slot.
struct Waiting<DB: Backend> {
    claimed: Claimed,
    handler: Arc<Handler<DB>>,
    job: Arc<InHand>,
}

/// A job's place in line: priority, due time, id, epoch.
type Place = (i16, Timestamp, i64, i64);

/// One queue's slots, and the jobs in line for them, first to start first.
struct Line<DB: Backend> {
    queue: Arc<Turnover>,
    slots: Arc<Semaphore>,
    waiting: Mutex<BTreeMap<Place, Waiting<DB>>>,
}

impl<DB: Backend> Line<DB> {
    fn new(queue: Arc<Turnover>) -> Arc<Line<DB>> {
        Arc::new(Line {
            slots: Arc::new(Semaphore::new(queue.concurrency)),
            queue,
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Place, Waiting<DB>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, waiting: Waiting<DB>) {
        let claimed = &waiting.claimed;
        let key = (claimed.priority, claimed.due_at, claimed.token.id, claimed.token.epoch);
        self.waiting().insert(key, waiting);
    }

    fn first(&self) -> Option<Waiting<DB>> {
        self.waiting().pop_first().map(|(_, waiting)| waiting)
    }

    fn last(&self) -> Option<Waiting<DB>> {
        self.waiting().pop_last().map(|(_, waiting)| waiting)
    }

    /// One whose session is over, so that it must not start any more.
    fn cut(&self) -> Option<Waiting<DB>> {
        let mut waiting = self.waiting();
        let key = *waiting.iter().find(|(_, w)| w.job.cut.is_cancelled())?.0;
        waiting.remove(&key)
    }
}

/// Waits for a slot and runs the job that is first in line then; or, when there will be no slot, ends one unrun.
async fn attempt<DB: Backend>(
    shared: &Shared,
    env: &Env<DB>,
    line: &Arc<Line<DB>>,
    session: &Session,
) -> (Finished, Arc<InHand>) {
    let mut ended = false;
    let mut patience = pin!(tokio::time::sleep(shared.line_limit()));
    let mut too_long = false;
    let (slot, waiting) = loop {
        let (slot, waiting) = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => (None, line.first()),
            () = session.cut.cancelled(), if !ended => (None, line.cut()),
            slot = line.slots.clone().acquire_owned() => (slot.ok(), line.first()),
            () = &mut patience, if !too_long => {
                too_long = true;
                (None, line.last())
            }
        };
        match waiting {
            Some(waiting) => break (slot, waiting),
            // A task of a later session took the last job of the one that ended, and left its own to this one.
            None => ended = session.cut.is_cancelled(),
        }
    };
    let Waiting { claimed, handler, job } = waiting;
    if slot.is_none() || job.cut.is_cancelled() {
        let why = match (job.cut.is_cancelled(), job.why()) {
            (true, Some(Cut::DeclaredDead)) => return (Finished::LeaseLost, job),
            (true, Some(Cut::Stopped)) => "worker stopped before it started",
            (true, _) => "worker could not renew its lease before it started",
            (false, _) if too_long && !shared.stopping.is_cancelled() => {
                line.queue.set_slow(true);
                "no slot became free in time"
            }
            (false, _) => "worker stopped before it started",
        };
        let settlement = job.ending.released(why);
        let finished = Finished::Settle {
            settlement,
            skipped: None,
        };
        return (finished, job);
    }
    let attempt = Attempt::of(&claimed, shared.stopping.clone());
    let began = Instant::now();
    let finished = run::run(env, &handler, &claimed, attempt, &job).await;
    let took = began.elapsed();
    line.queue.learn(took);
    if took < shared.line_limit() {
        line.queue.set_slow(false);
    }
    (finished, job)
}

/// Passes an attempt's end on to whoever writes it.
fn finish(shared: &Shared, finished: Finished, job: Arc<InHand>, settle: &mpsc::UnboundedSender<ToSettle>) {
    let (settlement, skipped) = match finished {
        Finished::Settled { ended, skipped, error } => return settler::settled(shared, &job, ended, skipped, error),
        Finished::LeaseLost => return settler::lost(shared, &job),
        Finished::Settle { settlement, skipped } => (settlement, skipped),
        Finished::Cut => match job.why() {
            // The watch records it.
            Some(Cut::TimeLimit) => return,
            Some(Cut::DeclaredDead) | None => return settler::lost(shared, &job),
            Some(Cut::LeaseEnding) => {
                let why = "worker could not renew its lease in time; the handler was stopped";
                (job.ending.failed(Fail::retry(why)), None)
            }
            Some(Cut::Stopped) => {
                let why = "worker stopped before the handler finished";
                (job.ending.failed(Fail::retry_after(Duration::ZERO, why)), None)
            }
        },
    };
    let entry = ToSettle {
        settlement,
        skipped,
        job,
    };
    shared.settling(1);
    if settle.send(entry).is_err() {
        tracing::warn!("the worker has stopped; an attempt's end is left to recovery");
    }
}
