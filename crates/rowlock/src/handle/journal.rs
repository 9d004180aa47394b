//! What the effects of one attempt share, and how they reach the store: on tasks of their own, and with patience.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use tokio::time::Instant;

use super::{Attempt, Fail, staged::detached};
use crate::{
    effect::{Begun, CallEnd, Intent, Noted},
    error::Result,
    event::Event,
    job::{Limits, check_name, check_payload},
    store::{Fut, Store},
};

/// Whether the lease is surely held: renewed in time, and not cut off.
pub(crate) type Held = Arc<dyn Fn() -> bool + Send + Sync>;

/// For how many leases a reply is held ready for a database that is away.
const REPLY_PATIENCE: u32 = 4;

/// Tells of an event.
pub(crate) type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// The effects of one attempt.
pub(crate) struct Effects {
    pub(super) store: Arc<dyn Store>,
    pub(super) attempt: Attempt,
    pub(super) limits: Limits,
    pub(super) lease: Duration,
    pub(super) time_limit: Duration,
    pub(super) emit: Emit,
    pub(super) held: Held,
    pub(super) used: Mutex<HashSet<String>>,
    pub(super) called: Arc<AtomicBool>,
}

impl Effects {
    /// A name is good for one effect per attempt.
    pub(super) fn claim_name(&self, name: &str) -> std::result::Result<(), Fail> {
        check_name("effect", name).map_err(|error| Fail::retire(error.to_string()))?;
        let fresh = self
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned());
        match fresh {
            true => Ok(()),
            false => Err(Fail::retire(format!(
                "effect {name:?} was used twice in one attempt; name each call by its index or item"
            ))),
        }
    }

    /// A reply as it is stored, or what is wrong with it.
    pub(super) fn written<T: Serialize>(&self, reply: &T) -> std::result::Result<String, String> {
        let json = serde_json::to_string(reply).map_err(|error| error.to_string())?;
        match check_payload(&json, &self.limits) {
            Ok(()) => Ok(json),
            Err(error) => Err(error.about("reply").to_string()),
        }
    }

    pub(super) async fn begin(&self, intent: Intent) -> Result<Begun> {
        self.called.store(true, Ordering::Relaxed);
        let (store, limit) = (self.store.clone(), self.lease);
        detached(async move { patiently(limit, || store.effect_begin(&intent)).await }).await
    }

    pub(super) async fn end(&self, end: CallEnd) -> Result<Noted> {
        // What came back from outside is worth more patience than the lease: the token says whether it may be stored.
        let (store, limit) = (self.store.clone(), self.lease * REPLY_PATIENCE);
        detached(async move { patiently(limit, || store.effect_end(&end)).await }).await
    }

    /// Records the end of a call that failed; the attempt fails with this, unless its lease is lost.
    pub(super) async fn recorded(&self, end: CallEnd, fail: Fail) -> Fail {
        match self.end(end).await {
            Ok(Noted::LeaseLost) => Fail::lease_lost(),
            Ok(Noted::Yes | Noted::Otherwise(_)) => fail,
            Err(error) => {
                // The intent stays open, and that says the same or more.
                tracing::warn!(
                    job = self.attempt.token.id,
                    "could not record how an external call failed: {}",
                    error.cause()
                );
                fail
            }
        }
    }

    pub(super) fn tell_replay(&self, no: i64, name: &str) {
        (self.emit)(Event::EffectReplayed {
            id: self.attempt.id(),
            no: no.into(),
            name: name.to_owned(),
        });
    }

    pub(super) fn tell_doubt(&self, no: i64, name: &str) {
        (self.emit)(Event::EffectUncertain {
            id: self.attempt.id(),
            no: no.into(),
            name: name.to_owned(),
        });
    }
}

/// Tries again while the database is away: a second try finds what the first one wrote. What it refuses stays refused.
async fn patiently<'a, T>(limit: Duration, mut write: impl FnMut() -> Fut<'a, T>) -> Result<T> {
    let until = Instant::now() + limit;
    let mut wait = Duration::from_millis(20);
    loop {
        match write().await {
            Err(error) if error.passes() && Instant::now() + wait < until => {
                tracing::debug!("could not write to the journal of effects, retrying: {}", error.cause());
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(1));
            }
            written => return written,
        }
    }
}
