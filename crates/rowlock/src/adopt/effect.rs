//! An outside call of a staged handler: the intent is committed before it, the reply after it.
//!
//! Both stand in the ledger under the effect's key, and are written only while the row's claim holds.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::atomic::Ordering,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::Postgres;

use super::handle::RowAttempt;
use crate::{
    attempt::hand::lock,
    event::Event,
    handle::{EffectKey, Fail, staged::Outside},
    id::EffectNo,
    job::{check_name, check_payload},
    store::postgres::adopt::Intent,
};

type Calling<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fail>> + Send + 'a>>;

/// How often a reply that has come is tried to be stored.
const STORE_TRIES: u32 = 5;

/// An outside call of a row in the making; await it. See [`Staged::effect`](crate::adopt::Staged::effect).
#[must_use = "nothing is called until this is awaited"]
pub struct RowEffect<'a, T> {
    attempt: &'a RowAttempt,
    outside: &'a Outside<Postgres>,
    name: String,
    call: Box<dyn FnOnce(EffectKey) -> Calling<'a, T> + Send + 'a>,
    park: bool,
}

crate::debug::debug_fields!([T] RowEffect<'_, T>, "Effect", name, park);

impl<'a, T: Send + 'a> RowEffect<'a, T> {
    pub(super) fn new<F, Fut, E>(
        attempt: &'a RowAttempt,
        outside: &'a Outside<Postgres>,
        name: &str,
        f: F,
    ) -> RowEffect<'a, T>
    where
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        E: Into<Fail> + 'a,
    {
        RowEffect {
            attempt,
            outside,
            name: name.to_owned(),
            call: Box::new(move |key| {
                let called = f(key);
                Box::pin(async move { called.await.map_err(Into::into) })
            }),
            park: false,
        }
    }

    /// Never calls again while nobody knows whether it happened: the row is retired, and a person decides. Whoever finds out
    /// that it did not happen reopens the case, and it is called; whoever finds that it did closes the case. For outside
    /// systems that do not honour keys.
    pub fn park(mut self) -> Self {
        self.park = true;
        self
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> IntoFuture for RowEffect<'a, T> {
    type Output = Result<T, Fail>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T: Serialize + DeserializeOwned + Send> RowEffect<'_, T> {
    async fn run(self) -> Result<T, Fail> {
        let RowAttempt { row, shared } = self.attempt;
        check_name("effect", &self.name).map_err(|error| Fail::retire(error.to_string()))?;
        if !row.uses(&self.name) {
            let problem = format!(
                "effect {:?} was used twice in one attempt; give each call its own name",
                self.name
            );
            return Err(Fail::retire(problem));
        }
        let key = EffectKey::new(row.uid, &self.name);
        let entry = format!("row effect {key}");
        let (id, no) = (row.hand.token.id.into(), EffectNo(0));
        self.outside.called.store(true, Ordering::Relaxed);
        let (made_at, first) = match shared.store.intend(&shared.table, &row.token, &entry).await? {
            Intent::First(made_at) => (made_at, true),
            Intent::Lost => return Err(Fail::lease_lost()),
            Intent::Replied(reply) => {
                let name = self.name.clone();
                shared.emit(Event::EffectReplayed { id, no, name });
                let problem = |error| {
                    Fail::retire(format!(
                        "the stored reply of effect {:?} cannot be read: {error}",
                        self.name
                    ))
                };
                return serde_json::from_str(&reply).map_err(problem);
            }
            Intent::Open(made_at) => {
                let name = self.name.clone();
                shared.emit(Event::EffectUncertain { id, no, name });
                if self.park {
                    lock(&row.doubts).push(entry);
                    let problem = format!(
                        "it is unknown whether effect {:?} happened; reopen the case if it did not, close the case if \
                         it did",
                        self.name
                    );
                    return Err(Fail::retire(problem));
                }
                (made_at, false)
            }
        };
        let reply = match (self.call)(key).await {
            Ok(reply) => reply,
            Err(fail) => {
                // That this call did not happen says nothing of an earlier one.
                if fail.not_done && first {
                    let undone = shared.store.unintend(&shared.table, &row.token, (&entry, made_at));
                    if let Err(error) = undone.await {
                        // Why the call failed is what the row is told; the intent stays open.
                        tracing::warn!(
                            id = row.token.id,
                            "could not record how an external call failed: {}",
                            error.cause()
                        );
                    }
                }
                return Err(fail);
            }
        };
        let json = serde_json::to_string(&reply)
            .map_err(|e| Fail::retire(format!("the reply cannot be written as JSON: {e}")))?;
        check_payload(&json, shared.rowlock().limits()).map_err(|e| Fail::retire(e.about("reply").to_string()))?;
        store_reply(self.attempt, (&entry, made_at), &json).await?;
        Ok(reply)
    }
}

/// An error does not say that nothing was stored; what is there then says so.
async fn store_reply(attempt: &RowAttempt, at: (&str, Timestamp), json: &str) -> Result<(), Fail> {
    let RowAttempt { row, shared } = attempt;
    let mut tries = 1;
    loop {
        let error = match shared.store.replied(&shared.table, &row.token, at, json).await {
            Ok(true) => return Ok(()),
            Ok(false) if tries == 1 => return Err(Fail::lease_lost()),
            Ok(false) => {
                return match shared.store.intend(&shared.table, &row.token, at.0).await? {
                    Intent::Replied(_) => Ok(()),
                    _ => Err(Fail::lease_lost()),
                };
            }
            Err(error) => error,
        };
        if tries == STORE_TRIES || !error.passes() {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(100) * tries).await;
        tries += 1;
    }
}
