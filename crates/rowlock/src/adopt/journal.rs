//! The journal of a row's external calls, in the ledger: an entry without an answer is an intent, with one a reply.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;

use super::hand::RowInHand;
use crate::{
    attempt::hand::lock,
    effect::{Begun, CallEnd, EffectState, Intent, Known, Noted, Policy},
    error::Result,
    handle::journal::{CallJournal, REPLY_PATIENCE, patiently},
    store::{
        Fut,
        postgres::{
            PgStore,
            adopt::{AdoptedTable, FoundCall, call_prefix},
        },
    },
};

/// The calls of one attempt of a row.
pub(super) struct RowJournal {
    store: PgStore,
    table: Arc<AdoptedTable>,
    row: Arc<RowInHand>,
    lease: Duration,
    /// The calls of this attempt, by name.
    begun: Mutex<HashMap<String, BegunCall>>,
}

#[derive(Clone, Copy)]
struct BegunCall {
    made_at: Timestamp,
    /// An earlier call may have happened, whatever the result of this one is.
    doubted: bool,
}

impl RowJournal {
    pub(super) fn new(store: PgStore, table: Arc<AdoptedTable>, row: Arc<RowInHand>, lease: Duration) -> RowJournal {
        RowJournal {
            store,
            table,
            row,
            lease,
            begun: Mutex::default(),
        }
    }

    fn key(&self, name: &str) -> String {
        call_prefix(self.row.uid) + name
    }

    /// The call may be made.
    fn go(&self, intent: &Intent, made_at: Timestamp, doubted: bool) -> Begun {
        // A reconciler that answered no has resolved the doubt.
        self.remember(intent, made_at, doubted && intent.policy != Policy::Ask);
        Begun::Go {
            no: 0,
            since: made_at,
            doubted,
        }
    }

    fn remember(&self, intent: &Intent, made_at: Timestamp, doubted: bool) {
        lock(&self.begun).insert(intent.name.clone(), BegunCall { made_at, doubted });
    }

    async fn found(&self, name: &str) -> Result<FoundCall> {
        self.store
            .find_call(&self.table, &self.row.token, &self.key(name))
            .await
    }

    async fn store_reply(&self, name: &str, reply: &str) -> Result<Noted> {
        let Some(call) = lock(&self.begun).get(name).copied() else {
            return Ok(Noted::LeaseLost);
        };
        let (key, token) = (self.key(name), &self.row.token);
        if self
            .store
            .store_reply(&self.table, token, (&key, call.made_at), reply)
            .await?
        {
            return Ok(Noted::Yes);
        }
        let found = known(self.found(name).await?);
        Ok(match found {
            // The first try of a write that was sent again.
            Some(known) if known.reply.as_deref() == Some(reply) => Noted::Yes,
            Some(known) => Noted::Otherwise(known),
            None => Noted::LeaseLost,
        })
    }

    async fn take_back(&self, name: &str) -> Result<Noted> {
        // If this call did not happen, an earlier one still may have.
        let call = lock(&self.begun).get(name).copied();
        if let Some(BegunCall {
            made_at,
            doubted: false,
        }) = call
        {
            let key = self.key(name);
            self.store
                .take_back_call(&self.table, &self.row.token, (&key, made_at))
                .await?;
        }
        Ok(match self.found(name).await? {
            FoundCall::ClaimLost => Noted::LeaseLost,
            FoundCall::Nothing | FoundCall::Call { .. } => Noted::Yes,
        })
    }
}

/// A call as the shared code of effects knows it.
fn known(found: FoundCall) -> Option<Known> {
    let FoundCall::Call {
        made_at,
        fingerprint,
        reply,
    } = found
    else {
        return None;
    };
    let state = if reply.is_some() { "replied" } else { "open" };
    Some(Known {
        no: 0,
        state: state.to_owned(),
        own: false,
        fingerprint,
        since: made_at,
        reply,
        error: None,
    })
}

impl CallJournal for RowJournal {
    /// Sent once: an intent cannot distinguish its own first try from the intent of an earlier attempt.
    fn begin_call<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(async move {
            let (key, token) = (self.key(&intent.name), &self.row.token);
            let begun = self
                .store
                .begin_call(&self.table, token, (&key, intent.fingerprint))
                .await?;
            if let Some(made_at) = begun {
                return Ok(self.go(intent, made_at, false));
            }
            let found = self.found(&intent.name).await?;
            let Some(known) = known(found) else {
                // The claim is lost, or was lost when the intent was refused.
                return Ok(Begun::LeaseLost);
            };
            let same = |stored| intent.fingerprint.is_none_or(|given| given == stored);
            match intent.again && known.reply.is_none() && known.fingerprint.is_none_or(same) {
                true => Ok(self.go(intent, known.since, true)),
                false => {
                    // The reply that a reconciler finds belongs to this intent.
                    self.remember(intent, known.since, true);
                    Ok(Begun::Known(known))
                }
            }
        })
    }

    fn end_call<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(patiently(self.lease * REPLY_PATIENCE, move || -> Fut<'a, Noted> {
            Box::pin(async move {
                match end.state {
                    EffectState::Replied => {
                        let reply = end.reply.as_deref().unwrap_or("null");
                        self.store_reply(&end.name, reply).await
                    }
                    EffectState::Undone => self.take_back(&end.name).await,
                    // The intent stays open, which means the same.
                    EffectState::InFlight | EffectState::Uncertain => Ok(Noted::Yes),
                }
            })
        }))
    }

    /// An operator who reopens the case confirms that the call did not happen.
    fn parked(&self, intent: &Intent) {
        lock(&self.row.doubts).push(self.key(&intent.name));
    }

    fn keeps_failures(&self) -> bool {
        false
    }

    fn doubt(&self, intent: &Intent, _: i64, _: Timestamp, why: &str) -> String {
        format!(
            "it is unknown whether effect {:?} happened: {why}; its idempotency key is {}; reopen the case if it did \
             not, close the case if it did",
            intent.name, intent.key
        )
    }
}
