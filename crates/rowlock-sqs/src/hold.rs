//! Held messages: hidden from others while their work runs, deleted when the row says that it is over.
//!
//! Two loops share what is held. One extends the visibility of everything at a third of the timeout; it does nothing
//! else, so that a slow database or a failing delete cannot make it late. The other looks at the rows and deletes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rowlock::{Admin, State, observe::Standing};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    counts::{Counts, add},
    error::{Error, Result},
    outside::{BATCH, Incoming, Outside, Pause},
};

/// How many rows are looked at in one read.
const LOOK_MAX: usize = 1000;
/// How many calls of SQS run at the same time.
const CALLS_MAX: usize = 8;
/// How often a delete is tried before the message is left to come again.
const DELETES_MAX: u32 = 4;
/// The longest pause of the receivers while no delete succeeds.
const CALM_MAX: Duration = Duration::from_secs(30);
/// How long the last deletes of a stop may take. What is missed comes again by itself.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What a held message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For the database to say what it means.
    Unread,
    /// For the attempt of this epoch of this job to be over.
    Awaits { job: i64, epoch: i64 },
    /// To be deleted; so often tried.
    Leaving { tries: u32 },
}

#[derive(Debug)]
struct Held {
    /// The receipt of the last delivery: SQS may refuse an older one.
    receipt: String,
    stage: Stage,
    since: Instant,
    extended: Instant,
    /// Its job was leased at the last look.
    leased: bool,
    _permit: OwnedSemaphorePermit,
}

/// The messages that this bridge holds, by id: a message that is delivered again while it is held is the same one.
#[derive(Debug)]
pub(crate) struct Hold {
    held: Mutex<HashMap<String, Held>>,
    /// Until when nothing more is received, because nothing that was received can be deleted.
    calm: Mutex<(Instant, Pause)>,
    room: Arc<Semaphore>,
    outside: Outside,
    counts: Arc<Counts>,
    visibility: Duration,
    hold_max: Duration,
    look: Duration,
}

/// Which attempt to wait for, by the place of the job; `None` when there is nothing to wait for: it is over, is
/// scheduled for later, or waits for its turn. Its row has what it needs, and the message has nothing to add.
fn awaited(state: State, epoch: i64, due: bool) -> Option<i64> {
    match state {
        State::Leased => Some(epoch),
        State::Ready if due => Some(epoch + 1),
        _ => None,
    }
}

/// Whether the awaited attempt is over, by the place of its job and its epoch; a job that is not there is over.
fn over(awaited: i64, found: Option<(State, i64)>) -> bool {
    match found {
        Some((State::Ready | State::Waiting, epoch)) => epoch >= awaited,
        Some((State::Leased, epoch)) => epoch > awaited,
        _ => true,
    }
}

impl Hold {
    pub(crate) fn new(outside: Outside, counts: Arc<Counts>, config: &Config) -> Hold {
        Hold {
            held: Mutex::default(),
            calm: Mutex::new((Instant::now(), Pause::up_to(CALM_MAX))),
            room: Arc::new(Semaphore::new(config.held_max)),
            outside,
            counts,
            visibility: config.visibility,
            hold_max: config.hold_max,
            look: config.look,
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a batch fits.
    pub(crate) async fn room(&self) -> OwnedSemaphorePermit {
        match self.room.clone().acquire_many_owned(BATCH as u32).await {
            Ok(permits) => permits,
            // Never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits while deletes fail, or everything would be received over and over.
    pub(crate) async fn calm(&self) {
        let until = self.calm.lock().unwrap_or_else(PoisonError::into_inner).0;
        tokio::time::sleep_until(until.into()).await;
    }

    /// Notes whether any of the deletes succeeded.
    fn heard(&self, heard: bool) {
        let mut calm = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        match heard {
            true => calm.1.reset(),
            false => calm.0 = Instant::now() + calm.1.next(),
        }
    }

    /// Begins to hold a message that was not read yet. A message that is held already gets its new receipt.
    pub(crate) fn take(&self, message: &Incoming, permit: OwnedSemaphorePermit) {
        let now = Instant::now();
        let mut held = self.held();
        let held = held.entry(message.id.clone()).or_insert(Held {
            receipt: String::new(),
            stage: Stage::Unread,
            since: now,
            extended: now,
            leased: false,
            _permit: permit,
        });
        held.receipt.clone_from(&message.receipt);
        held.extended = now;
    }

    /// Its meaning is known: it is held while there is something to wait for, else deleted.
    pub(crate) fn follow(&self, message: &Incoming, standing: &Standing) {
        let stage = match awaited(standing.state, standing.epoch, standing.due) {
            Some(epoch) => Stage::Awaits {
                job: standing.id,
                epoch,
            },
            None => Stage::Leaving { tries: 0 },
        };
        self.set(message, stage);
    }

    /// The message is not needed any more.
    pub(crate) fn leave(&self, message: &Incoming) {
        self.set(message, Stage::Leaving { tries: 0 });
    }

    /// Stops holding it and leaves it to come again. SQS moves a message that comes too often to its dead-letter queue.
    pub(crate) fn give_up(&self, message: &Incoming) {
        if self.held().remove(&message.id).is_some() {
            add(&self.counts.left, 1);
        }
    }

    fn set(&self, message: &Incoming, stage: Stage) {
        if let Some(held) = self.held().get_mut(&message.id) {
            held.stage = stage;
        }
    }

    /// Extends until `stop`.
    pub(crate) async fn extend_until(self: Arc<Self>, stop: CancellationToken) {
        let third = self.visibility / 3;
        // Separate rounds: a call that hangs does not keep other messages from being extended.
        let mut rounds = JoinSet::new();
        while stop.run_until_cancelled(tokio::time::sleep(third / 4)).await.is_some() {
            while rounds.try_join_next().is_some() {}
            let due: Vec<(String, String)> = {
                let mut held = self.held();
                let due = held.iter_mut().filter(|(_, h)| h.extended.elapsed() >= third);
                due.map(|(id, held)| {
                    held.extended = Instant::now();
                    (id.clone(), held.receipt.clone())
                })
                .collect()
            };
            if !due.is_empty() {
                let hold = self.clone();
                rounds.spawn(async move { hold.extend(due, hold.visibility).await });
            }
        }
    }

    async fn extend(&self, messages: Vec<(String, String)>, visibility: Duration) {
        let limit = self.visibility / 3;
        let told = in_batches(&messages, |batch| {
            let outside = self.outside.clone();
            async move { outside.extend(&batch, visibility, limit).await }
        });
        for (batch, told) in told.await {
            let failed = told.map_or_else(
                |error| {
                    tracing::warn!("{}", error.whole());
                    batch.len()
                },
                |failed| failed.len(),
            );
            add(&self.counts.extend_failures, failed);
            add(&self.counts.extended, batch.len() - failed);
        }
    }

    /// Looks and deletes until `stop`. Then messages that have become a job are deleted too: the row has all it needs,
    /// and a message that came again with every restart would end in the dead-letter queue. Messages that were not read
    /// yet are handed back immediately.
    pub(crate) async fn look_until(self: Arc<Self>, admin: Admin, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.look)).await.is_some() {
            self.look(&admin).await;
            self.delete().await;
        }
        for held in self.held().values_mut() {
            if matches!(held.stage, Stage::Awaits { .. }) {
                held.stage = Stage::Leaving { tries: 0 };
            }
        }
        let last = async {
            self.delete().await;
            let rest = self.held().drain().map(|(id, held)| (id, held.receipt)).collect();
            self.extend(rest, Duration::ZERO).await;
        };
        // A silent SQS must not hold up a stop.
        if tokio::time::timeout(STOP_MAX, last).await.is_err() {
            tracing::warn!("SQS did not answer in time during shutdown; it delivers the messages in hand again");
        }
    }

    async fn look(&self, admin: &Admin) {
        let messages: Vec<(String, i64, i64)> = {
            let held = self.held();
            let awaits = held.iter().filter_map(|(id, held)| match held.stage {
                Stage::Awaits { job, epoch } => Some((id.clone(), job, epoch)),
                _ => None,
            });
            awaits.collect()
        };
        for part in messages.chunks(LOOK_MAX) {
            let ids: Vec<i64> = part.iter().map(|(_, job, _)| *job).collect();
            let found = match admin.observe().standing(&ids).await {
                Ok(found) => found,
                Err(error) => {
                    add(&self.counts.database_failures, 1);
                    tracing::warn!("{}", Error::from(error).whole());
                    return;
                }
            };
            let found: HashMap<i64, Standing> = found.into_iter().map(|s| (s.id, s)).collect();
            let mut held = self.held();
            for (id, job, epoch) in part {
                let (Some(held), standing) = (held.get_mut(id), found.get(job)) else {
                    continue;
                };
                held.leased = standing.is_some_and(|s| s.state == State::Leased);
                let waits = standing.and_then(|s| awaited(s.state, s.epoch, s.due));
                if waits.is_none() || over(*epoch, standing.map(|s| (s.state, s.epoch))) {
                    held.stage = Stage::Leaving { tries: 0 };
                }
            }
        }
        self.make_room();
    }

    /// Lets go of what was held for too long, and, where nothing more can be received, of the oldest whose job nobody
    /// has taken yet. Their rows are due: they are done without a message, and the sweep sends another if they are not.
    fn make_room(&self) {
        let wanted = BATCH.saturating_sub(self.room.available_permits());
        let mut held = self.held();
        let awaits = |held: &&mut Held| matches!(held.stage, Stage::Awaits { .. });
        let mut gone = 0;
        for held in held
            .values_mut()
            .filter(awaits)
            .filter(|h| h.since.elapsed() > self.hold_max)
        {
            held.stage = Stage::Leaving { tries: 0 };
            gone += 1;
        }
        if wanted > 0 {
            let mut idle: Vec<&mut Held> = held.values_mut().filter(awaits).filter(|h| !h.leased).collect();
            idle.sort_by_key(|held| held.since);
            for held in idle.into_iter().take(wanted) {
                // Keep messages that came a moment ago: most of their jobs are taken by the next look.
                if held.since.elapsed() > 4 * self.look {
                    held.stage = Stage::Leaving { tries: 0 };
                    gone += 1;
                }
            }
        }
        add(&self.counts.let_go, gone);
    }

    async fn delete(&self) {
        let leaving: Vec<(String, String)> = {
            let held = self.held();
            let leaving = held.iter().filter(|(_, h)| matches!(h.stage, Stage::Leaving { .. }));
            leaving.map(|(id, held)| (id.clone(), held.receipt.clone())).collect()
        };
        let told = in_batches(&leaving, |batch| {
            let outside = self.outside.clone();
            async move { outside.delete(&batch).await }
        });
        let told = told.await;
        if !told.is_empty() {
            self.heard(
                told.iter()
                    .any(|(batch, told)| told.as_ref().is_ok_and(|failed| failed.len() < batch.len())),
            );
        }
        for (batch, told) in told {
            let failed = told.unwrap_or_else(|error| {
                tracing::warn!("{}", error.whole());
                (0..batch.len()).collect()
            });
            add(&self.counts.delete_failures, failed.len());
            let mut held = self.held();
            for (no, id) in batch.iter().enumerate() {
                match (failed.contains(&no), held.get_mut(id)) {
                    (false, _) => {
                        held.remove(id);
                        add(&self.counts.deleted, 1);
                    }
                    (
                        true,
                        Some(Held {
                            stage: Stage::Leaving { tries },
                            ..
                        }),
                    ) if *tries + 1 < DELETES_MAX => *tries += 1,
                    (true, _) => {
                        held.remove(id);
                        add(&self.counts.left, 1);
                    }
                }
            }
        }
    }
}

/// Calls SQS with the receipts of each ten, a few calls at the same time. Returns the ids of each ten with the answer.
async fn in_batches<T, F>(
    messages: &[(String, String)],
    call: impl Fn(Vec<String>) -> F,
) -> Vec<(Vec<String>, Result<T>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (mut calls, mut told) = (JoinSet::new(), Vec::new());
    for batch in messages.chunks(BATCH) {
        while calls.len() >= CALLS_MAX {
            told.extend(calls.join_next().await.and_then(|call| call.ok()));
        }
        let (ids, receipts) = batch.iter().cloned().unzip();
        let running = call(receipts);
        calls.spawn(async move { (ids, running.await) });
    }
    while let Some(call) = calls.join_next().await {
        told.extend(call.ok());
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_held_while_its_attempt_can_still_come_and_no_longer() {
        assert_eq!(awaited(State::Ready, 2, true), Some(3));
        assert_eq!(awaited(State::Leased, 3, false), Some(3));
        for (state, due) in [
            (State::Ready, false),
            (State::Waiting, false),
            (State::Case, false),
            (State::Finished, false),
        ] {
            assert_eq!(awaited(state, 3, due), None, "{state:?}");
        }
        for (state, epoch, is_over) in [
            (State::Ready, 2, false),
            (State::Ready, 3, true),
            (State::Waiting, 2, false),
            (State::Leased, 3, false),
            (State::Leased, 4, true),
            (State::Case, 3, true),
            (State::Finished, 0, true),
        ] {
            assert_eq!(over(3, Some((state, epoch))), is_over, "{state:?} {epoch}");
        }
        assert!(over(3, None), "its retention is over");
    }
}
