//! What the effects of one attempt share, and how they write to the journal: on separate tasks, and with retries.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
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

/// For how many leases a reply is kept ready while the database is away.
pub(crate) const REPLY_PATIENCE: u32 = 4;

/// Reports an event.
pub(crate) type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// Where the calls of one attempt are recorded. Every write is made only while the attempt holds its claim.
pub(crate) trait CallJournal: Send + Sync {
    /// Commits an intent, unless the stored effect says not to call.
    fn begin_call<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun>;

    /// Commits how a call ended.
    fn end_call<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted>;

    /// The effect is parked: a person decides whether its call happened.
    fn parked(&self, _: &Intent) {}

    /// Whether the end of a failed call is stored. If not, the intent stays open, and the next attempt that finds the
    /// intent reports the doubt.
    fn keeps_failures(&self) -> bool;

    /// The text of the case of an effect in doubt, which tells its reader what to do.
    fn doubt(&self, intent: &Intent, no: i64, since: Timestamp, why: &str) -> String;
}

/// The journal of a job: one row per effect, with its state.
pub(super) struct JobJournal {
    pub(super) store: Arc<dyn Store>,
    pub(super) lease: Duration,
}

impl CallJournal for JobJournal {
    /// An intent that is sent again after an error finds its own first try.
    fn begin_call<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(patiently(self.lease, || self.store.effect_begin(intent)))
    }

    /// A reply is retried for longer than the lease, because the token decides whether it may be stored.
    fn end_call<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(patiently(self.lease * REPLY_PATIENCE, || self.store.effect_end(end)))
    }

    fn keeps_failures(&self) -> bool {
        true
    }

    fn doubt(&self, intent: &Intent, no: i64, since: Timestamp, why: &str) -> String {
        format!(
            "effect {no} {:?} is in doubt since {since:.0}: {why}; its idempotency key is {}; find out whether the \
             call happened, then run \
             `rowlock effect resolve {no} --happened JSON` or `rowlock effect resolve {no} --not-happened`",
            intent.name, intent.key
        )
    }
}

/// The effects of one attempt.
pub(crate) struct Effects {
    pub(super) journal: Arc<dyn CallJournal>,
    pub(super) attempt: Attempt,
    pub(super) limits: Limits,
    pub(super) time_limit: Duration,
    pub(super) emit: Emit,
    pub(super) held: Held,
    pub(super) used: Mutex<HashSet<String>>,
    pub(super) called: Arc<AtomicBool>,
}

impl Effects {
    /// A name may be used for one effect per attempt.
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
                "effect {name:?} was used twice in one attempt; give each call its own name"
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

    pub(super) async fn begin_call(&self, intent: Intent) -> Result<Begun> {
        self.called.store(true, Ordering::Relaxed);
        let journal = self.journal.clone();
        detached(async move { journal.begin_call(&intent).await }).await
    }

    pub(super) async fn end_call(&self, end: CallEnd) -> Result<Noted> {
        let journal = self.journal.clone();
        detached(async move { journal.end_call(&end).await }).await
    }

    /// Records the end of a call that failed; the attempt fails with this, unless its lease is lost.
    pub(super) async fn recorded(&self, end: CallEnd, fail: Fail) -> Fail {
        match self.end_call(end).await {
            Ok(Noted::LeaseLost) => Fail::lease_lost(),
            Ok(Noted::Yes | Noted::Otherwise(_)) => fail,
            Err(error) => {
                // The intent stays open, which means the same or more.
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

/// Tries again while the database is away. An error that the database answered with is returned.
pub(crate) async fn patiently<'a, T>(limit: Duration, mut write: impl FnMut() -> Fut<'a, T>) -> Result<T> {
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
