//! The body lock: keyed concurrency around a staged body, without a connection held.
//!
//! A lock belongs to the attempt's token. It holds while the lease does: settling, a crash or a lost lease end it,
//! because the next caller that wants the slot sees that the lease is gone. The lock excludes only other holders of the
//! same key. What must be decided at the commit belongs in the commit.

use std::{
    collections::HashSet,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{Fail, Staged};
use crate::{
    error::{Error, Result},
    key::check_key,
    lease::Token,
    root::Backend,
    store::{
        Store,
        body_lock::{Slot, SlotAsk},
    },
};

/// The most slots that a key may have.
const SLOTS_MAX: i32 = 1000;

/// The pause between two tries: the first, and the longest.
const TRY_FIRST: Duration = Duration::from_millis(10);
const TRY_MAX: Duration = Duration::from_millis(100);

/// About how long a job that found no slot is deferred: the first time, and at most. Each deferral is recorded.
const DEFER: Duration = Duration::from_secs(1);
const DEFER_MAX: Duration = Duration::from_secs(20);

/// The delay of this deferral, after this many earlier claims that used no attempt; `spread` is in 0..1.
fn away(before: i64, spread: f64) -> Duration {
    let before = i32::try_from(before.clamp(0, 30)).unwrap_or(0);
    let about = DEFER.mul_f64(1.5_f64.powi(before)).min(DEFER_MAX);
    about.mul_f64(0.5 + spread)
}

/// The locks that one attempt holds.
#[derive(Default)]
pub(crate) struct Locks {
    keys: Mutex<HashSet<String>>,
    /// The transaction that ends the attempt is open; the locks end with its commit.
    pub(super) settling: AtomicBool,
}

/// One key that this attempt holds, in memory; removed when dropped.
struct InHand {
    locks: Arc<Locks>,
    key: String,
}

impl InHand {
    fn new(locks: &Arc<Locks>, key: &str) -> Option<InHand> {
        let fresh = lock(&locks.keys).insert(key.to_owned());
        fresh.then(|| InHand {
            locks: locks.clone(),
            key: key.to_owned(),
        })
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        lock(&self.locks.keys).remove(&self.key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body lock that is being configured; set its slots and timeout, then `.await` it.
#[must_use = "nothing is locked until this is awaited"]
pub struct TakeLock {
    store: Arc<dyn Store>,
    token: Token,
    locks: Arc<Locks>,
    key: String,
    slots: i32,
    patience: Duration,
    /// How often the job was claimed before without using an attempt.
    given_back: i64,
}

crate::debug::debug_fields!([] TakeLock, "TakeLock", key, slots, patience);

impl TakeLock {
    /// How many attempts may hold the key at the same time (1 unless set, at most 1000). Use the same number wherever
    /// the key is used: each caller looks at the slots up to its own number only.
    pub fn slots(mut self, slots: i32) -> TakeLock {
        self.slots = slots;
        self
    }

    /// Waits this long for a slot before the job is deferred (not at all unless set). The wait counts against the
    /// kind's time limit, and the queue's slot stays taken meanwhile.
    pub fn timeout(mut self, timeout: Duration) -> TakeLock {
        self.patience = timeout;
        self
    }

    async fn take(self) -> std::result::Result<BodyLock, Fail> {
        if let Err(error) = check_key("lock", &self.key) {
            return Err(Fail::retire(error.to_string()));
        }
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            let problem = format!(
                "lock {:?}: {} slots is out of range (1 to {SLOTS_MAX})",
                self.key, self.slots
            );
            return Err(Fail::retire(problem));
        }
        let Some(in_hand) = InHand::new(&self.locks, &self.key) else {
            let key = &self.key;
            return Err(Fail::retire(format!(
                "lock {key:?} is already held by this attempt; release it before taking it again"
            )));
        };
        let start = Instant::now();
        let mut pause = TRY_FIRST;
        let ask = SlotAsk::Take { slots: self.slots };
        loop {
            // On SQLite the lock would wait for the writer that this attempt's own transaction holds.
            if self.locks.settling.load(Ordering::Relaxed) {
                let key = &self.key;
                return Err(Fail::retire(format!(
                    "lock {key:?} was taken after begin; take it before begin, because it ends with the commit"
                )));
            }
            match self.store.body_lock(self.token, &self.key, ask).await? {
                Slot::Taken(slot) => {
                    return Ok(BodyLock {
                        store: self.store,
                        token: self.token,
                        slot,
                        in_hand,
                    });
                }
                // Another caller got a slot first, so this loop ends.
                Slot::Raced | Slot::Freed => {}
                // However this is settled, the token shows the lost lease too.
                Slot::LeaseLost => return Err(Fail::retry("lease lost before the lock was taken")),
                Slot::Full => {
                    let left = self.patience.saturating_sub(start.elapsed());
                    if left.is_zero() {
                        return Err(Fail::defer(away(self.given_back, fastrand::f64())));
                    }
                    tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64()).min(left)).await;
                    pause = (pause * 3 / 2).min(TRY_MAX);
                }
            }
        }
    }
}

impl IntoFuture for TakeLock {
    type Output = std::result::Result<BodyLock, Fail>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

/// A slot of a key that this attempt holds. If dropped, the slot stays taken until the attempt is settled or its lease
/// is lost.
#[must_use = "the lock is held until the attempt ends; keep this to release it earlier"]
pub struct BodyLock {
    store: Arc<dyn Store>,
    token: Token,
    slot: i32,
    in_hand: InHand,
}

crate::debug::debug_fields!([] BodyLock, "BodyLock", token, slot);

impl BodyLock {
    /// Which of the key's slots, from 1.
    pub fn slot(&self) -> i32 {
        self.slot
    }

    /// Frees the slot now instead of at the attempt's end. `false` when the lease, and the lock with it, was lost
    /// before: another attempt may have run the body since, and keeps the slot. A later settlement of this attempt is
    /// refused.
    ///
    /// # Errors
    /// [`Error::Config`] after `begin`, because the lock then ends with the commit. Otherwise [`Error::Database`]; the
    /// slot is then free when the attempt ends at the latest. Cancel-safe in the same way.
    pub async fn release(self) -> Result<bool> {
        if self.in_hand.locks.settling.load(Ordering::Relaxed) {
            let key = &self.in_hand.key;
            return Err(Error::Config(format!(
                "lock {key:?} was released after begin; release it before begin, or let it end with the commit"
            )));
        }
        let ask = SlotAsk::Free { slot: self.slot };
        let freed = self.store.body_lock(self.token, &self.in_hand.key, ask).await?;
        Ok(freed == Slot::Freed)
    }
}

impl<A, DB: Backend> Staged<A, DB> {
    /// Locks a key for the rest of this attempt: `let lock = cx.lock("customer:42").slots(3).timeout(limit).await?`.
    /// While attempts that hold their leases have every slot, the job is deferred, which gives the attempt back: for
    /// about a second the first time, and longer each time up to 30 s. The lock holds no connection.
    ///
    /// # Errors
    /// A deferral when no slot became free. A case when the key or the number of slots is invalid, when this attempt
    /// already holds the key, or after `begin`. A retry when the database refused.
    ///
    /// Cancel safety: dropped half-way, the slot may be taken; it ends with the attempt, and taking it again succeeds.
    pub fn lock(&self, key: impl Into<String>) -> TakeLock {
        TakeLock {
            store: Arc::new(self.rowlock().store().clone()),
            token: self.token,
            locks: self.locks.clone(),
            key: key.into(),
            slots: 1,
            patience: Duration::ZERO,
            given_back: self.token.epoch - i64::from(self.attempt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_finds_no_slot_stays_away_longer_each_time_up_to_half_a_minute() {
        let mean = |before| away(before, 0.5);
        assert_eq!(mean(0), DEFER);
        assert_eq!(
            (mean(1), mean(2)),
            (Duration::from_millis(1500), Duration::from_millis(2250))
        );
        assert!((0..7).all(|before| mean(before) < mean(before + 1)));
        assert_eq!((mean(8), mean(i64::MAX)), (DEFER_MAX, DEFER_MAX));
        assert_eq!(
            mean(-1),
            DEFER,
            "an attempt more than claims cannot be, and would do no harm"
        );
        let (least, most) = (away(100, 0.0), away(100, 1.0));
        assert_eq!((least, most), (Duration::from_secs(10), Duration::from_secs(30)));
    }
}
