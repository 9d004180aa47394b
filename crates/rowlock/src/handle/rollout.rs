//! Rollout gates: a percentage that operators set while workers run. A handler asks it which of two code paths to take.
//!
//! A key is in or out by its hash: the same key always gets the same answer at the same percentage, and a growing
//! percentage only adds keys. The database is read twice a second at most, by one caller for all.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    error::{Doing, Result},
    job::check_name,
    key::{check_key, lock_no},
    root::{Backend, Rowlock},
    store::{Inspect, setting::rollouts},
};

/// How old an answer may be. Together with the time of a read it stays well under a second.
const FRESH: Duration = Duration::from_millis(500);

/// How long a read may take before the last known percentages are used.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// How often each side of a gate was taken in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolloutCount {
    /// The rollout.
    pub name: String,
    /// How often the answer was `true`.
    pub on: u64,
    /// How often the answer was `false`.
    pub off: u64,
}

/// What one process knows of the rollouts; shared by every copy of the handle.
#[derive(Default)]
pub(crate) struct Gates {
    known: Mutex<Option<KnownPercents>>,
    /// Held by the task that reads; the others wait for its result.
    looking: tokio::sync::Mutex<()>,
    counts: Mutex<BTreeMap<String, (u64, u64)>>,
}

#[derive(Clone)]
struct KnownPercents {
    percents: Arc<HashMap<String, u8>>,
    /// When the last read began, whether it succeeded or not.
    looked: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gates {
    pub(crate) fn counts(&self) -> Vec<RolloutCount> {
        let counts = lock(&self.counts);
        let count = |(name, (on, off)): (&String, &(u64, u64))| RolloutCount {
            name: name.clone(),
            on: *on,
            off: *off,
        };
        counts.iter().map(count).collect()
    }

    fn fresh(&self) -> Option<Arc<HashMap<String, u8>>> {
        let known = lock(&self.known);
        let fresh = known.as_ref().filter(|known| known.looked.elapsed() < FRESH);
        fresh.map(|known| known.percents.clone())
    }

    async fn percents(&self, store: &impl Inspect) -> Result<Arc<HashMap<String, u8>>> {
        if let Some(percents) = self.fresh() {
            return Ok(percents);
        }
        let _looking = self.looking.lock().await;
        if let Some(percents) = self.fresh() {
            return Ok(percents);
        }
        let looked = Instant::now();
        let before = lock(&self.known).clone();
        let found = match &before {
            // Wait for the first read: without it there is no answer.
            None => rollouts(store).await,
            Some(_) => match tokio::time::timeout(LOOK_LIMIT, rollouts(store)).await {
                Ok(found) => found,
                Err(_) => Err(sqlx::Error::PoolTimedOut).doing("read rollouts"),
            },
        };
        let percents = match (found, before) {
            (Ok(found), _) => Arc::new(found.into_iter().map(|r| (r.name, r.percent)).collect()),
            (Err(error), Some(before)) => {
                tracing::warn!(
                    "could not read rollouts, using the last known percentages: {}",
                    error.cause()
                );
                before.percents
            }
            (Err(error), None) => return Err(error),
        };
        *lock(&self.known) = Some(KnownPercents {
            percents: percents.clone(),
            looked,
        });
        Ok(percents)
    }

    fn count(&self, name: &str, on: bool) {
        let mut counts = lock(&self.counts);
        if !counts.contains_key(name) {
            counts.insert(name.to_owned(), (0, 0));
        }
        if let Some((ons, offs)) = counts.get_mut(name) {
            match on {
                true => *ons += 1,
                false => *offs += 1,
            }
        }
    }
}

/// A key's position, from 0 to 99: the key is in as soon as the percentage is greater.
fn place(name: &str, key: &str) -> u8 {
    lock_no(name, key).rem_euclid(100) as u8
}

impl<DB: Backend> Rowlock<DB> {
    /// Whether this key takes the new code path: `if cx.rowlock().rollout("incident-guard", &entity).await? { … }`.
    ///
    /// The percentage is 0 until it is set (`rowlock rollout NAME PERCENT`); a change takes effect within a second in
    /// every process. The same key gets the same answer at the same percentage; a growing percentage never takes a key
    /// out. While the database is away, the last known percentage counts.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a bad name or key; [`Error::Database`](crate::Error::Database)
    /// when this process has never been able to read the rollouts. Cancel-safe.
    pub async fn rollout(&self, name: &str, key: &str) -> Result<bool> {
        check_name("rollout", name)?;
        check_key("key", key)?;
        let percents = self.gates().percents(self.store()).await?;
        let percent = percents.get(name).copied().unwrap_or(0);
        let on = place(name, key) < percent;
        self.gates().count(name, on);
        Ok(on)
    }

    /// How often each side of each gate was taken, in this process and through copies of this handle, workers included.
    pub fn rollout_counts(&self) -> Vec<RolloutCount> {
        self.gates().counts()
    }

    /// [`Rowlock::rollout_counts`] as a function that may outlive the handle, such as the callback of a metric. It
    /// keeps nothing of the handle alive, and returns no counts once the last copy of the handle is gone.
    pub fn rollout_counter(&self) -> impl Fn() -> Vec<RolloutCount> + Send + Sync + 'static {
        let gates = Arc::downgrade(self.gates());
        move || gates.upgrade().map(|gates| gates.counts()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_place_in_each_rollout_and_places_are_spread() {
        let mut places = [0u32; 100];
        for n in 0..20_000 {
            let key = format!("entity:{n}");
            assert_eq!(place("guard", &key), place("guard", &key));
            places[usize::from(place("guard", &key))] += 1;
        }
        // 200 each on average; 6 standard deviations are 85.
        assert!(places.iter().all(|n| (115..=285).contains(n)), "{places:?}");
        let differs = (0..100).filter(|n| place("guard", &n.to_string()) != place("other", &n.to_string()));
        assert!(differs.count() > 90, "each rollout draws its own lots");
    }
}
