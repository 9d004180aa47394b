//! The journal of external calls: intents before a call, replies after it, and the resolutions of effects in doubt.
//!
//! Every write of an attempt carries its token and locks the lease until it commits, so that recovery cannot end the
//! lease in between. A write that is sent again after an error finds its first try and changes nothing.

use super::rows::{Columns, Noun};
use crate::{
    effect::{Begun, EffectFilter, EffectView, Known, Resolution},
    key::Fingerprint,
};

/// Which effects to list.
#[derive(Clone, Copy, Debug)]
pub enum EffectQuery<'a> {
    One(i64),
    Filter(&'a EffectFilter),
}

/// What was stored before, as the statement that reads it returns it.
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

/// The reply that an operator found, as it is stored.
pub fn stored_reply(resolution: &Resolution) -> Option<String> {
    match resolution {
        Resolution::Happened(reply) => Some(reply.to_string()),
        Resolution::NotHappened => None,
    }
}
