//! Turns claimed jobs into running tasks, and their ends into settlements.

use std::{collections::HashMap, sync::Arc, time::Instant};

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{
    batch, leased,
    leases::{JobShared, Leases},
    line::{Line, Place, Turn, Waits, end_of_cut},
    relay::Relay,
    settler::{self, Left, ToSettle},
    turnover::Turnover,
};
use crate::{
    attempt::{
        self, Env, Finished,
        hand::{InHand, Session},
    },
    handle::{
        Attempt,
        atomic::{Handler, Shape},
    },
    job::kind_no,
    lease::Claimed,
    root::{Backend, Rowlock},
    settle::Ending,
};

/// The jobs of one queue that wait for its slots.
pub(super) type JobLine<DB> = Line<WaitingJob<DB>>;

/// What turns claimed jobs into running tasks.
pub(crate) struct Crew<DB: Backend> {
    shared: Arc<JobShared>,
    env: Arc<Env<DB>>,
    handlers: HashMap<i64, Arc<Handler<DB>>>,
    lines: HashMap<i64, Arc<JobLine<DB>>>,
    settle: mpsc::UnboundedSender<ToSettle<Leases>>,
    tasks: TaskTracker,
}

impl<DB: Backend> Crew<DB> {
    pub(crate) fn new(
        shared: &Arc<JobShared>,
        rowlock: Rowlock<DB>,
        handlers: Vec<Handler<DB>>,
        queues: &[Arc<Turnover>],
        settle: mpsc::UnboundedSender<ToSettle<Leases>>,
        tasks: TaskTracker,
    ) -> Crew<DB> {
        let mut by_kind = HashMap::new();
        for handler in handlers {
            let handler = Arc::new(handler);
            for version in 1..=handler.version {
                by_kind.insert(kind_no(&handler.kind, version), handler.clone());
            }
        }
        let line = |queue: &Arc<Turnover>| (queue.queue_no, Line::new(queue.clone(), shared));
        Crew {
            shared: shared.clone(),
            env: Arc::new(shared.env(rowlock)),
            handlers: by_kind,
            lines: queues.iter().map(line).collect(),
            settle,
            tasks,
        }
    }

    /// Puts all jobs of a claim in line, then starts their tasks: the first task to start finds all other jobs waiting.
    pub(crate) fn dispatch(&self, mut jobs: Vec<Claimed>, session: &Arc<Session>, tried: &[(String, i64)]) {
        jobs.sort_by_key(|j| (j.priority, j.due_at, j.token.id));
        let line_up = |claimed| self.line_up(claimed, session, tried);
        let lines: Vec<_> = jobs.into_iter().filter_map(line_up).collect();
        for line in lines {
            self.start(line, session.clone());
        }
    }

    /// Puts a job in line; returns the line.
    fn line_up(&self, claimed: Claimed, session: &Arc<Session>, tried: &[(String, i64)]) -> Option<Arc<JobLine<DB>>> {
        let handler = self.handlers.get(&claimed.kind_no).cloned();
        let line = self.lines.get(&claimed.queue_no).cloned();
        let (Some(handler), Some(line)) = (handler, line) else {
            // A claim returns only what was asked for.
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
        line.push(WaitingJob { claimed, handler, job });
        Some(line)
    }

    /// Starts a task for one job in line. The task that gets a slot first takes the job that is first.
    fn start(&self, line: Arc<JobLine<DB>>, session: Arc<Session>) {
        let (shared, env, settle) = (self.shared.clone(), self.env.clone(), self.settle.clone());
        self.tasks.spawn(async move {
            let tell = |finished, job: Arc<InHand>| {
                // The handler is over, whether or not its end is written yet, so its slot is free.
                line.queue.let_one_go();
                shared.freed.notify_one();
                finish(&shared, finished, job, &settle);
            };
            match line.next(&shared, &session).await {
                Turn::Leave => {}
                Turn::End(waiting, finished) => tell(finished, waiting.job),
                Turn::Run(waiting, _slot) => run(&shared, &env, &line, waiting, &tell).await,
            }
        });
    }
}

/// A claimed job that waits for a slot.
pub(super) struct WaitingJob<DB: Backend> {
    pub(super) claimed: Claimed,
    pub(super) handler: Arc<Handler<DB>>,
    pub(super) job: Arc<InHand>,
}

impl<DB: Backend> Waits for WaitingJob<DB> {
    fn hand(&self) -> &InHand {
        &self.job
    }

    fn kind(&self) -> &str {
        &self.handler.kind
    }

    fn place(&self) -> Place {
        let claimed = &self.claimed;
        (claimed.priority, claimed.due_at, claimed.token.id, claimed.token.epoch)
    }
}

impl<DB: Backend> JobLine<DB> {
    /// Takes the first in line, if it is an atomic job that runs in its own transaction.
    pub(super) fn take_atomic(&self) -> Option<WaitingJob<DB>> {
        if self.slots.available_permits() > 0 {
            // Another task is about to take it.
            return None;
        }
        let mut line = self.waiting();
        let first = line.jobs.first_entry()?;
        let held = self.reason_to_hold(first.get());
        let WaitingJob { claimed, handler, job } = first.get();
        let fits = matches!(handler.shape, Shape::Atomic(_))
            && handler.batch.jobs_max <= 1
            && held.is_none()
            && !(claimed.alone || claimed.expired || claimed.body.is_none() || job.cut.is_cancelled());
        let waiting = fits.then(|| first.remove())?;
        line.spare += 1;
        Some(waiting)
    }

    /// Undoes [`JobLine::take_atomic`], unless the task that came with the job has ended.
    pub(super) fn put_back(&self, waiting: WaitingJob<DB>) -> Option<WaitingJob<DB>> {
        let mut line = self.waiting();
        if line.spare == 0 {
            return Some(waiting);
        }
        line.spare -= 1;
        line.jobs.insert(waiting.place(), waiting);
        None
    }

    /// Takes the next job of this kind, for a batch under way. It may skip jobs of other kinds, but none of higher
    /// priority.
    pub(super) fn take_another(&self, handler: &Arc<Handler<DB>>) -> Option<WaitingJob<DB>> {
        let mut line = self.waiting();
        let mut passed = i16::MAX;
        let mut found = None;
        for (place, waiting) in &line.jobs {
            if place.0 > passed {
                break;
            }
            if !Arc::ptr_eq(&waiting.handler, handler) {
                passed = place.0;
            } else if !waiting.claimed.alone
                && !waiting.job.cut.is_cancelled()
                && self.reason_to_hold(waiting).is_none()
            {
                found = Some(*place);
                break;
            }
        }
        let waiting = line.jobs.remove(&found?)?;
        line.spare += 1;
        Some(waiting)
    }
}

/// Runs a job in its slot, and those that share its transaction or follow on its connection.
async fn run<DB: Backend>(
    shared: &JobShared,
    env: &Env<DB>,
    line: &JobLine<DB>,
    waiting: WaitingJob<DB>,
    tell: batch::Tell<'_>,
) {
    if waiting.handler.batch.jobs_max > 1 && !waiting.claimed.alone {
        let began = Instant::now();
        let jobs = batch::run(shared, env, line, waiting, tell).await;
        return line.learn(shared, began, jobs);
    }
    let mut relay = Relay::along(line, &shared.stopping);
    let mut current = Some(waiting);
    while let Some(waiting) = current {
        let (began, stopping) = (Instant::now(), shared.stopping.is_cancelled());
        let finished = run_in_own_transaction(shared, env, &waiting, &mut relay).await;
        tell(finished, waiting.job);
        if !stopping {
            line.learn(shared, began, 1);
        }
        current = relay.step(env).await;
    }
}

/// Runs a job in its own transaction, unless the worker stops or the job's session is over.
pub(super) async fn run_in_own_transaction<DB: Backend>(
    shared: &JobShared,
    env: &Env<DB>,
    waiting: &WaitingJob<DB>,
    next: &mut impl attempt::Next<DB>,
) -> Finished {
    let WaitingJob { claimed, handler, job } = waiting;
    if let Some(finished) = end_of_cut(job) {
        return finished;
    }
    if shared.stopping.is_cancelled() {
        return attempt::settle(job.ending.released("worker stopped before it started"));
    }
    let attempt = Attempt::of(claimed, shared.stopping.clone());
    leased::run(env, handler, claimed, attempt, job, next).await
}

/// Passes an attempt's end on to the code that writes it.
fn finish(shared: &JobShared, finished: Finished, job: Arc<InHand>, settle: &mpsc::UnboundedSender<ToSettle<Leases>>) {
    match settler::conclude(shared, finished, job) {
        Left::Nothing => {}
        Left::Tell(news) => shared.send_news(news),
        Left::Write(end) => {
            shared.add_unsettled(1);
            if settle.send(end).is_err() {
                tracing::warn!("the worker has stopped; the outcome of an attempt is left to recovery");
            }
        }
    }
}
