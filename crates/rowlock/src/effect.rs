//! An effect: an external call of a staged handler. Its intent is stored before the call and its reply after the call.
//!
//! Between the two it is unknown whether the effect happened. An intent without a reply and without a running attempt
//! is *in doubt*, until a later attempt, a reconciler or a person finds out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use crate::id::EffectNo;
use crate::{id::JobId, key::Fingerprint, lease::Token};

/// What to do when it is unknown whether an effect happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Call again under the same key; the external system must honour the key.
    #[default]
    RetryWithKey,
    /// Never call again: the job becomes a case that shows the open intent, and a person decides.
    Park,
}

/// What a reconciler found out about an effect in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict<T> {
    /// It happened, with this reply.
    Happened(T),
    /// It did not happen and can no longer happen: it may be called again.
    NotHappened,
    /// Not known yet; the attempt fails and a later one asks again.
    Unknown,
}

/// What a person found out about an effect in doubt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Resolution {
    /// It happened; this is its reply, as the handler would have got it.
    Happened(serde_json::Value),
    /// It did not happen and can no longer happen: the next attempt calls again.
    NotHappened,
}

impl Resolution {
    /// The word stored for it.
    pub(crate) fn state(&self) -> EffectState {
        match self {
            Resolution::Happened(_) => EffectState::Replied,
            Resolution::NotHappened => EffectState::Undone,
        }
    }
}

/// The state of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EffectState {
    /// Its intent is stored and the attempt that stored it still holds its lease.
    InFlight,
    /// It is unknown whether it happened.
    Uncertain,
    /// It happened; its reply is stored.
    Replied,
    /// It did not happen; the next attempt calls.
    Undone,
}

impl EffectState {
    const ALL: [EffectState; 4] = [
        EffectState::InFlight,
        EffectState::Uncertain,
        EffectState::Replied,
        EffectState::Undone,
    ];

    /// The word shown by the `effects` view and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            EffectState::InFlight => "in flight",
            EffectState::Uncertain => "uncertain",
            EffectState::Replied => "replied",
            EffectState::Undone => "undone",
        }
    }

    /// Reads the word shown by the `effects` view.
    pub fn parse(word: &str) -> Option<EffectState> {
        EffectState::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// One effect as the `effects` view shows it.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct EffectView {
    /// Its number in this database; `rowlock effect resolve` takes it.
    pub no: EffectNo,
    /// The job.
    pub id: JobId,
    /// The job's kind; `None` when its body is gone.
    pub kind: Option<String>,
    /// The job's queue; `None` when its body is gone.
    pub queue: Option<String>,
    /// The effect's name within the job.
    pub name: String,
    /// The key that the external system was given, the same on every attempt.
    pub key: String,
    /// Its state.
    #[serde(serialize_with = "state_word")]
    pub state: EffectState,
    /// What follows a doubt: `retry`, `park` or `ask`.
    pub policy: String,
    /// How often it was called, or was about to be.
    pub tries: i32,
    /// When the last call's intent was stored.
    pub begun_at: Timestamp,
    /// When the last call was to be over.
    pub deadline_at: Timestamp,
    /// When its end was recorded.
    pub ended_at: Option<Timestamp>,
    /// What the external system answered.
    pub reply: Option<serde_json::Value>,
    /// What went wrong with the last call.
    pub error: Option<String>,
    /// Who resolved the doubt, if it was resolved.
    pub resolved_by: Option<String>,
}

crate::debug::debug_fields!(
    [] EffectView, "EffectView",
    no, id, kind, queue, name, key, state, policy, tries, begun_at, deadline_at, ended_at, error, resolved_by
);

fn state_word<S: serde::Serializer>(state: &EffectState, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_str(state.as_str())
}

/// Which effects to list; every setting narrows. All of them unless set, at most 100.
///
/// ```
/// let doubtful = rowlock::effect::EffectFilter::new().doubtful().limit(10);
/// ```
#[derive(Clone, Debug)]
pub struct EffectFilter {
    pub(crate) job: Option<JobId>,
    pub(crate) doubtful: bool,
    pub(crate) limit: u32,
}

impl EffectFilter {
    /// Every effect.
    pub const fn new() -> EffectFilter {
        EffectFilter {
            job: None,
            doubtful: false,
            limit: 100,
        }
    }

    /// Only this job's.
    pub fn job(mut self, job: impl Into<JobId>) -> EffectFilter {
        self.job = Some(job.into());
        self
    }

    /// Only those in doubt, the longest in doubt first.
    pub const fn doubtful(mut self) -> EffectFilter {
        self.doubtful = true;
        self
    }

    /// At most this many (100 unless set).
    pub const fn limit(mut self, effects: u32) -> EffectFilter {
        self.limit = effects;
        self
    }
}

impl Default for EffectFilter {
    fn default() -> Self {
        EffectFilter::new()
    }
}

/// What follows a doubt, as it is stored.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Retry,
    Park,
    Ask,
}

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Retry => "retry",
            Policy::Park => "park",
            Policy::Ask => "ask",
        }
    }
}

impl From<OnUnknown> for Policy {
    fn from(on_unknown: OnUnknown) -> Policy {
        match on_unknown {
            OnUnknown::RetryWithKey => Policy::Retry,
            OnUnknown::Park => Policy::Park,
        }
    }
}

/// What is stored before an external call.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Intent {
    pub token: Token,
    pub name: String,
    pub key: String,
    pub policy: Policy,
    pub fingerprint: Option<Fingerprint>,
    /// From the intent to the deadline.
    pub limit: Duration,
    /// Calls although an earlier call may have happened.
    pub again: bool,
}

/// The answer to an intent.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Begun {
    /// The intent is stored: call.
    Go {
        no: i64,
        since: Timestamp,
        /// An earlier attempt's call was left without an end.
        doubted: bool,
    },
    /// Nothing was written, because the effect is already known.
    Known(Known),
    /// The token matched nothing.
    LeaseLost,
}

/// An effect as an earlier attempt, or a person, left it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Known {
    pub no: i64,
    /// The stored word.
    pub state: String,
    /// The asking attempt wrote it itself.
    pub own: bool,
    pub fingerprint: Option<Fingerprint>,
    pub since: Timestamp,
    /// JSON.
    pub reply: Option<String>,
    pub error: Option<String>,
}

/// How an external call ended.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct CallEnd {
    pub token: Token,
    pub name: String,
    pub state: EffectState,
    /// JSON.
    pub reply: Option<String>,
    /// Free of NUL and bounded in length.
    pub error: Option<String>,
}

/// The answer to the end of a call.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Noted {
    /// It is recorded.
    Yes,
    /// Another end was recorded before.
    Otherwise(Known),
    /// The token matched nothing.
    LeaseLost,
}

impl Noted {
    /// What a write that found no row found instead.
    pub(crate) fn instead(known: Begun, wanted: EffectState) -> Noted {
        match known {
            // The first try of a write that was sent again.
            Begun::Known(known) if known.own && known.state == wanted.as_str() => Noted::Yes,
            Begun::Known(known) => Noted::Otherwise(known),
            Begun::Go { .. } | Begun::LeaseLost => Noted::LeaseLost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for state in EffectState::ALL {
            assert_eq!(EffectState::parse(state.as_str()), Some(state));
        }
        assert_eq!(EffectState::parse("open"), None);
    }
}
