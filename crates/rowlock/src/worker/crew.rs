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
    batch,
    hand::Shared,
    leased,
    relay::Relay,
    settler::{self, ToSettle},
    turnover::Turnover,
    watch::SWEEP_EVERY,
};
use crate::{
    attempt::{
        self, Env, Finished, Next, Nobody,
        hand::{Cut, InHand, Session},
    },
    breaker,
    event::Event,
    handle::{
        Attempt, Fail,
        atomic::{Handler, Shape},
    },
    job::kind_no,
    lease::Claimed,
    pause::Known,
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
                by_kind.insert(kind_no(&handler.kind, version), handler.clone());
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
                        id: token.id.into(),
                        epoch: token.epoch,
                        committed,
                    });
                }),
                emit: Arc::new(move |event| told.emit(event)),
                held: Arc::new(move || !lease.lease_ending(Instant::now())),
            }),
            handlers: by_kind,
            lines: queues
                .iter()
                .map(|queue| (queue.queue_no, Line::new(queue.clone(), shared)))
                .collect(),
            settle,
            tasks,
        }
    }

    /// Puts all jobs of a claim in line, then starts their tasks: the first to start finds every other one waiting.
    pub(crate) fn dispatch(&self, mut jobs: Vec<Claimed>, session: &Arc<Session>, tried: &[(String, i64)]) {
        jobs.sort_by_key(|j| (j.priority, j.due_at, j.token.id));
        let line_up = |claimed| self.line_up(claimed, session, tried);
        let lines: Vec<_> = jobs.into_iter().filter_map(line_up).collect();
        for line in lines {
            self.start(line, session.clone());
        }
    }

    /// The line that the job waits in now.
    fn line_up(&self, claimed: Claimed, session: &Arc<Session>, tried: &[(String, i64)]) -> Option<Arc<Line<DB>>> {
        let handler = self.handlers.get(&claimed.kind_no).cloned();
        let line = self.lines.get(&claimed.queue_no).cloned();
        let (Some(handler), Some(line)) = (handler, line) else {
            // Only what was asked for comes back from a claim.
            tracing::error!(
                job = claimed.token.id,
                "claimed a job that this worker has no handler or queue for; report this as a bug"
            );
            return None;
        };
        let ending = Ending {
            probe: !tried.is_empty(),
            ..Ending::of(&claimed, handler.backoff)
        };
        let bond = self.shared.breakers.bond(&handler.breakers, tried);
        let names = line.queue.names(claimed.body.as_ref().map_or("", |body| &body.kind));
        let job = InHand::of_job(&claimed, ending, handler.time_limit, names, session.clone(), bond);
        line.queue.took_one();
        self.shared.take(job.clone());
        line.push(Waiting { claimed, handler, job });
        Some(line)
    }

    /// Starts a task for one job in line: whichever gets a slot first takes the job that is first.
    fn start(&self, line: Arc<Line<DB>>, session: Arc<Session>) {
        let (shared, env, settle) = (self.shared.clone(), self.env.clone(), self.settle.clone());
        self.tasks.spawn(async move {
            let tell = |finished, job: Arc<InHand>| {
                // Its body is over, whether or not its end is written yet, so its slot is free.
                line.queue.let_one_go();
                shared.freed.notify_one();
                finish(&shared, finished, job, &settle);
            };
            attempt(&shared, &env, &line, &session, &tell).await;
        });
    }
}

/// A claimed job that waits for a slot.
pub(super) struct Waiting<DB: Backend> {
    pub(super) claimed: Claimed,
    pub(super) handler: Arc<Handler<DB>>,
    pub(super) job: Arc<InHand>,
}

impl<DB: Backend> Waiting<DB> {
    fn place(&self) -> Place {
        let claimed = &self.claimed;
        (claimed.priority, claimed.due_at, claimed.token.id, claimed.token.epoch)
    }
}

/// A job's place in line: priority, due time, id, epoch.
type Place = (i16, Timestamp, i64, i64);

/// One queue's slots, and the jobs in line for them, first to start first.
pub(super) struct Line<DB: Backend> {
    queue: Arc<Turnover>,
    slots: Arc<Semaphore>,
    waiting: Mutex<InLine<DB>>,
    pauses: Known,
    breakers: breaker::Known,
}

struct InLine<DB: Backend> {
    jobs: BTreeMap<Place, Waiting<DB>>,
    /// Tasks with no job left to take: somebody else's batch has it.
    spare: usize,
}

/// What a task that waited finds.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
enum Turn<DB: Backend> {
    Job(Waiting<DB>),
    /// Nothing for it.
    Empty,
    /// Nothing any more: it may go.
    Spare,
}

impl<DB: Backend> InLine<DB> {
    fn take(&mut self, job: impl FnOnce(&mut BTreeMap<Place, Waiting<DB>>) -> Option<Waiting<DB>>) -> Turn<DB> {
        if self.spare > 0 {
            self.spare -= 1;
            return Turn::Spare;
        }
        job(&mut self.jobs).map_or(Turn::Empty, Turn::Job)
    }
}

impl<DB: Backend> Line<DB> {
    fn new(queue: Arc<Turnover>, shared: &Shared) -> Arc<Line<DB>> {
        Arc::new(Line {
            slots: Arc::new(Semaphore::new(queue.concurrency)),
            queue,
            waiting: Mutex::new(InLine {
                jobs: BTreeMap::new(),
                spare: 0,
            }),
            pauses: shared.pauses.clone(),
            breakers: shared.breakers.known.clone(),
        })
    }

    /// Why a claimed job is not to be started any more.
    fn stops(&self, waiting: &Waiting<DB>) -> Option<&'static str> {
        let pauses = self.pauses.now();
        if pauses.stop(self.queue.queue_no, &waiting.handler.kind) || pauses.stop_group(waiting.job.ending.member) {
            return Some("paused before it started");
        }
        (!waiting.job.bond.admitted(&self.breakers)).then_some("its breaker opened before it started")
    }

    /// How long a job that is stopped must not come back. Nobody asks for a kind that is stopped, but a group's head can be
    /// claimed again until the sweep has withdrawn it.
    fn not_before(&self, waiting: &Waiting<DB>) -> Duration {
        match self.pauses.now().stop_group(waiting.job.ending.member) {
            true => SWEEP_EVERY,
            false => Duration::ZERO,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, InLine<DB>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, waiting: Waiting<DB>) {
        self.waiting().jobs.insert(waiting.place(), waiting);
    }

    fn first(&self) -> Turn<DB> {
        self.waiting().take(|jobs| jobs.pop_first().map(|(_, waiting)| waiting))
    }

    fn last(&self) -> Turn<DB> {
        self.waiting().take(|jobs| jobs.pop_last().map(|(_, waiting)| waiting))
    }

    /// One whose session is over, so that it must not start any more.
    fn cut(&self) -> Turn<DB> {
        self.waiting().take(|jobs| {
            let key = *jobs.iter().find(|(_, w)| w.job.cut.is_cancelled())?.0;
            jobs.remove(&key)
        })
    }

    /// The first in line, if it is an atomic job that runs in a transaction of its own.
    pub(super) fn next_atomic(&self) -> Option<Waiting<DB>> {
        if self.slots.available_permits() > 0 {
            // Another task is about to take it.
            return None;
        }
        let mut line = self.waiting();
        let first = line.jobs.first_entry()?;
        let stops = self.stops(first.get());
        let Waiting { claimed, handler, job } = first.get();
        let fits = matches!(handler.shape, Shape::Atomic(_))
            && handler.batch.jobs_max <= 1
            && stops.is_none()
            && !(claimed.alone || claimed.expired || claimed.body.is_none() || job.cut.is_cancelled());
        let waiting = fits.then(|| first.remove())?;
        line.spare += 1;
        Some(waiting)
    }

    /// Undoes [`Line::next_atomic`], unless the task that came with the job has left.
    pub(super) fn put_back(&self, waiting: Waiting<DB>) -> Option<Waiting<DB>> {
        let mut line = self.waiting();
        if line.spare == 0 {
            return Some(waiting);
        }
        line.spare -= 1;
        line.jobs.insert(waiting.place(), waiting);
        None
    }

    /// The next job of this kind, for a batch under way; a job of another kind is passed over by none of less priority.
    pub(super) fn another(&self, handler: &Arc<Handler<DB>>) -> Option<Waiting<DB>> {
        let mut line = self.waiting();
        let mut passed = i16::MAX;
        let mut found = None;
        for (place, waiting) in &line.jobs {
            if place.0 > passed {
                break;
            }
            if !Arc::ptr_eq(&waiting.handler, handler) {
                passed = place.0;
            } else if !waiting.claimed.alone && !waiting.job.cut.is_cancelled() && self.stops(waiting).is_none() {
                found = Some(*place);
                break;
            }
        }
        let waiting = line.jobs.remove(&found?)?;
        line.spare += 1;
        Some(waiting)
    }
}

/// Waits for a slot and runs the job that is first in line then; or, when there will be no slot, ends one unrun.
async fn attempt<DB: Backend>(
    shared: &Shared,
    env: &Env<DB>,
    line: &Arc<Line<DB>>,
    session: &Session,
    tell: batch::Tell<'_>,
) {
    let mut ended = false;
    let mut patience = pin!(tokio::time::sleep(shared.line_limit()));
    let mut too_long = false;
    let (slot, waiting) = loop {
        let (slot, turn) = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => (None, line.first()),
            () = session.cut.cancelled(), if !ended => (None, line.cut()),
            slot = line.slots.clone().acquire_owned() => (slot.ok(), line.first()),
            () = &mut patience, if !too_long => {
                too_long = true;
                (None, line.last())
            }
        };
        match turn {
            Turn::Job(waiting) => break (slot, waiting),
            // A task of a later session took the last job of the one that ended, and left its own to this one.
            Turn::Empty => ended = session.cut.is_cancelled(),
            Turn::Spare => return,
        }
    };
    if slot.is_none() && !waiting.job.cut.is_cancelled() && too_long && !shared.stopping.is_cancelled() {
        line.queue.set_slow(true);
        let settlement = waiting.job.ending.released("no slot became free in time");
        return tell(attempt::settle(settlement), waiting.job);
    }
    let stops = line.stops(&waiting).filter(|_| slot.is_some());
    if let (Some(why), false) = (stops, waiting.job.cut.is_cancelled()) {
        let settlement = waiting.job.ending.released_for(line.not_before(&waiting), why);
        return tell(attempt::settle(settlement), waiting.job);
    }
    let may_run = slot.is_some();
    let learn = |began: Instant, jobs| {
        let took = began.elapsed();
        line.queue.learn(took, jobs);
        if took < shared.line_limit() {
            line.queue.set_slow(false);
        }
    };
    if may_run && waiting.handler.batch.jobs_max > 1 && !waiting.claimed.alone && !waiting.job.cut.is_cancelled() {
        let began = Instant::now();
        let jobs = batch::run(shared, env, line, waiting, tell).await;
        return learn(began, jobs);
    }
    if !may_run {
        let finished = alone(shared, env, &waiting, false, &mut Nobody).await;
        return tell(finished, waiting.job);
    }
    let mut relay = Relay::along(line, &shared.stopping);
    let mut current = Some(waiting);
    while let Some(waiting) = current {
        let began = Instant::now();
        let may_run = !shared.stopping.is_cancelled();
        let finished = alone(shared, env, &waiting, may_run, &mut relay).await;
        tell(finished, waiting.job);
        if may_run {
            learn(began, 1);
        }
        current = relay.step(env).await;
    }
}

/// Runs a job in a transaction of its own, if it may run: with a slot, and while its session lasts.
pub(super) async fn alone<DB: Backend>(
    shared: &Shared,
    env: &Env<DB>,
    waiting: &Waiting<DB>,
    may_run: bool,
    next: &mut impl Next<DB>,
) -> Finished {
    let Waiting { claimed, handler, job } = waiting;
    let why = match (job.cut.is_cancelled(), job.why()) {
        (true, Some(Cut::DeclaredDead)) => return Finished::LeaseLost,
        (true, Some(Cut::Stopped)) => "worker stopped before it started",
        (true, _) => "worker could not renew its lease before it started",
        (false, _) if !may_run => "worker stopped before it started",
        (false, _) => {
            let attempt = Attempt::of(claimed, shared.stopping.clone());
            return leased::run(env, handler, claimed, attempt, job, next).await;
        }
    };
    attempt::settle(job.ending.released(why))
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
            Some(Cut::FailedOver) => {
                let why = "the database failed over; the handler's transaction was on the old server";
                (job.ending.failed(Fail::retry_after(Duration::ZERO, why)), None)
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
        tracing::warn!("the worker has stopped; the outcome of an attempt is left to recovery");
    }
}
