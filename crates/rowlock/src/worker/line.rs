//! The slots of one queue or table, and the claimed jobs or rows that wait for them.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    shared::{Claims, Shared},
    turnover::Turnover,
    watch::SWEEP_EVERY,
};
use crate::{
    attempt::{
        self, Finished,
        hand::{Cut, InHand, Session, lock},
    },
    breaker,
    pause::KnownPauses,
    store::Settlement,
};

/// What waits for a slot.
pub(crate) trait Waits: Send + 'static {
    fn hand(&self) -> &InHand;

    fn kind(&self) -> &str;

    fn place(&self) -> Place;
}

/// The order in which waiting jobs start: priority, due time, id, epoch.
pub(crate) type Place = (i16, Timestamp, i64, i64);

/// One queue's slots, and what waits for them, first to start first.
pub(crate) struct Line<W> {
    pub(crate) queue: Arc<Turnover>,
    pub(super) slots: Arc<Semaphore>,
    waiting: Mutex<Waiting<W>>,
    pauses: KnownPauses,
    breakers: breaker::KnownBreakers,
}

pub(super) struct Waiting<W> {
    pub(super) jobs: BTreeMap<Place, W>,
    /// Tasks with no job left to take: another task's batch or relay has it.
    pub(super) spare: usize,
}

/// What a task that waited finds.
enum Taken<W> {
    Job(W),
    /// Nothing for this task now.
    Empty,
    /// Nothing for this task any more: it ends.
    Spare,
}

impl<W> Waiting<W> {
    fn take(&mut self, job: impl FnOnce(&mut BTreeMap<Place, W>) -> Option<W>) -> Taken<W> {
        if self.spare > 0 {
            self.spare -= 1;
            return Taken::Spare;
        }
        job(&mut self.jobs).map_or(Taken::Empty, Taken::Job)
    }
}

/// What a task that waited for a slot does.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
pub(crate) enum Turn<W> {
    /// Runs this, while it holds the slot.
    Run(W, OwnedSemaphorePermit),
    /// Ends this without running it.
    End(W, Finished),
    /// Nothing.
    Leave,
}

impl<W: Waits> Line<W> {
    pub(crate) fn new<C: Claims>(queue: Arc<Turnover>, shared: &Shared<C>) -> Arc<Line<W>> {
        Arc::new(Line {
            slots: Arc::new(Semaphore::new(queue.concurrency)),
            queue,
            waiting: Mutex::new(Waiting {
                jobs: BTreeMap::new(),
                spare: 0,
            }),
            pauses: shared.pauses.clone(),
            breakers: shared.breakers.known.clone(),
        })
    }

    /// Why a claimed job must not start any more.
    pub(super) fn reason_to_hold(&self, waiting: &W) -> Option<&'static str> {
        let (pauses, hand) = (self.pauses.now(), waiting.hand());
        if pauses.stop(self.queue.queue_no, waiting.kind()) || pauses.stop_group(hand.ending.member) {
            return Some("paused before it started");
        }
        (!hand.bond.admitted(&self.breakers)).then_some("its breaker opened before it started")
    }

    /// How long a job that must not start is deferred. A paused kind is not claimed, but a group's head can be claimed
    /// again until the sweep has withdrawn it.
    fn delay(&self, waiting: &W) -> Duration {
        match self.pauses.now().stop_group(waiting.hand().ending.member) {
            true => SWEEP_EVERY,
            false => Duration::ZERO,
        }
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting<W>> {
        lock(&self.waiting)
    }

    pub(crate) fn push(&self, waiting: W) {
        self.waiting().jobs.insert(waiting.place(), waiting);
    }

    fn first(&self) -> Taken<W> {
        self.waiting().take(|jobs| jobs.pop_first().map(|(_, waiting)| waiting))
    }

    fn last(&self) -> Taken<W> {
        self.waiting().take(|jobs| jobs.pop_last().map(|(_, waiting)| waiting))
    }

    /// A job whose session is over, so that it must not start any more.
    fn first_cut(&self) -> Taken<W> {
        self.waiting().take(|jobs| {
            let key = *jobs.iter().find(|(_, waiting)| waiting.hand().cut.is_cancelled())?.0;
            jobs.remove(&key)
        })
    }

    /// Waits for a slot and takes the job that is first then. Without a slot in time, or if the job must not start any
    /// more, the job is to end without running.
    pub(crate) async fn next<C: Claims>(&self, shared: &Shared<C>, session: &Session) -> Turn<W> {
        let mut session_over = false;
        let mut patience = pin!(tokio::time::sleep(shared.slot_patience()));
        let mut too_long = false;
        let (slot, waiting) = loop {
            let (slot, turn) = tokio::select! {
                biased;
                () = shared.stopping.cancelled() => (None, self.first()),
                () = session.cut.cancelled(), if !session_over => (None, self.first_cut()),
                slot = self.slots.clone().acquire_owned() => (slot.ok(), self.first()),
                () = &mut patience, if !too_long => {
                    too_long = true;
                    (None, self.last())
                }
            };
            match turn {
                Taken::Job(waiting) => break (slot, waiting),
                // A task of a later session took the last job of the session that ended, and left its own job to this
                // task.
                Taken::Empty => session_over = session.cut.is_cancelled(),
                Taken::Spare => return Turn::Leave,
            }
        };
        let hand = waiting.hand();
        if let Some(finished) = end_of_cut(hand) {
            return Turn::End(waiting, finished);
        }
        let released: Settlement = match slot {
            Some(slot) => match self.reason_to_hold(&waiting) {
                None => return Turn::Run(waiting, slot),
                Some(why) => hand.ending.released_for(self.delay(&waiting), why),
            },
            None if too_long && !shared.stopping.is_cancelled() => {
                self.queue.set_slow(true);
                hand.ending.released("no slot became free in time")
            }
            None => hand.ending.released("worker stopped before it started"),
        };
        Turn::End(waiting, attempt::settle(released))
    }

    /// The handlers of this many jobs ran in one slot since then.
    pub(crate) fn learn<C: Claims>(&self, shared: &Shared<C>, began: Instant, jobs: usize) {
        let took = began.elapsed();
        self.queue.learn(took, jobs);
        if took < shared.slot_patience() {
            self.queue.set_slow(false);
        }
    }
}

/// How a job that was cut off before it started ends.
pub(super) fn end_of_cut(hand: &InHand) -> Option<Finished> {
    if !hand.cut.is_cancelled() {
        return None;
    }
    let why = match hand.why() {
        Some(Cut::DeclaredDead) => return Some(Finished::LeaseLost),
        Some(Cut::Stopped) => "worker stopped before it started",
        _ => "worker could not renew its lease before it started",
    };
    Some(attempt::settle(hand.ending.released(why)))
}
