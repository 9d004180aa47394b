//! The journal of outside calls: intents before them, replies after them, and what people found out about the rest.
//!
//! Every write of an attempt carries its token and holds the lease while it commits, so that recovery cannot end the
//! lease in between. Sent again after an error, a write finds its own first try and leaves it at that.

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::{
    effect::{Begun, CallEnd, EffectFilter, EffectView, Intent, Known, Noted, Resolution},
    key::Fingerprint,
};

/// The engine's verbs for effects, on connections of the store's own.
pub trait Journal: Send + Sync {
    /// Commits an intent, unless what is known of the effect speaks against a call.
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun>;
    /// Commits how a call ended.
    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted>;

    fn effect(&self, no: i64) -> Fut<'_, Option<EffectView>>;
    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>>;
    /// Records what a person found out, with an audit row: the effect's job, or `None` when the effect is not in doubt
    /// or its call is under way.
    fn effect_resolve<'a>(&'a self, no: i64, resolution: &'a Resolution, actor: &'a str) -> Fut<'a, Option<i64>>;
}

/// What was written before, as the statement that looks after it says.
impl Noun for Begun {
    fn of(row: &impl Columns) -> sqlx::Result<Begun> {
        let (true, Some(no)) = (row.read("held")?, row.read("no")?) else {
            return Ok(Begun::LeaseLost);
        };
        let fingerprint: Option<Vec<u8>> = row.read("fingerprint")?;
        Ok(Begun::Known(Known {
            no,
            state: row.read("state")?,
            own: row.read("own")?,
            fingerprint: fingerprint.and_then(|bytes| Fingerprint::from_bytes(&bytes)),
            since: row.read("begun_at")?,
            reply: row.read("reply")?,
            error: row.read("error")?,
        }))
    }
}

impl Noun for EffectView {
    fn of(row: &impl Columns) -> sqlx::Result<EffectView> {
        Ok(EffectView {
            no: row.read("no")?,
            id: row.read("id")?,
            kind: row.read("kind")?,
            queue: row.read("queue")?,
            name: row.read("name")?,
            key: row.read("key")?,
            state: row.read("state")?,
            policy: row.read("policy")?,
            tries: row.read("tries")?,
            begun_at: row.read("begun_at")?,
            deadline_at: row.read("deadline_at")?,
            ended_at: row.read("ended_at")?,
            reply: row.read("reply")?,
            error: row.read("error")?,
            resolved_by: row.read("resolved_by")?,
        })
    }
}

/// The reply that a person found, as it is stored.
pub fn stored_reply(resolution: &Resolution) -> Option<String> {
    match resolution {
        Resolution::Happened(reply) => Some(reply.to_string()),
        Resolution::NotHappened => None,
    }
}
