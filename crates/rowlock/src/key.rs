//! Keys and fingerprints: the caller's name for a logical operation, and the hash that distinguishes two requests.
//!
//! A key is equal on every repeat of the same operation. A fingerprint is a hash of the request, so that another
//! request under the same key is refused instead of answered.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    id::JobId,
    state::{Ended, State},
};

/// The longest key, in bytes: it is the first column of a unique index.
const KEY_BYTES_MAX: usize = 250;

/// How long a key is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// As long as the workers keep keys (see `Worker::retention`), and at least while its job is open.
    #[default]
    Policy,
    /// While its job is ready, waiting, leased or a case. Enqueue keys only.
    WhileOpen,
    /// At least this long, and at least while its job is open.
    For(Duration),
    /// For ever.
    ForEver,
}

impl Hold {
    /// The word stored beside the key.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Hold::Policy => "policy",
            Hold::WhileOpen => "open",
            Hold::For(_) => "period",
            Hold::ForEver => "ever",
        }
    }

    /// How long from now it ends by itself.
    pub(crate) fn period(self) -> Option<Duration> {
        match self {
            Hold::For(period) => Some(period),
            _ => None,
        }
    }

    /// Refuses a period of zero, or one that no database could add to a time.
    pub(crate) fn checked(self) -> Result<Hold> {
        const LONGEST: Duration = Duration::from_secs(3600 * 24 * 366 * 10);
        match self {
            Hold::For(period) if period.is_zero() || period > LONGEST => Err(Error::invalid(
                "hold",
                format!(
                    "{period:?} is out of range (above 0, at most ten years); to hold the key longer, hold it for ever"
                ),
            )),
            hold => Ok(hold),
        }
    }
}

/// Whether an enqueue key may be given to another job: only this function decides. `hold` is the word stored beside the
/// key, `passed` says that its period is over, `state` is the state of its job. Only the workers' sweep removes a key
/// held by policy.
pub(crate) fn hold_is_over(hold: &str, passed: bool, state: Option<State>) -> bool {
    let in_a_place = !matches!(state, None | Some(State::Finished));
    match hold {
        "open" => !in_a_place,
        "period" => passed && !in_a_place,
        _ => false,
    }
}

/// The key of a draft, the fingerprint of its request, and how long the key is held.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Keyed {
    pub key: String,
    pub fingerprint: Fingerprint,
    pub hold: Hold,
}

impl Keyed {
    /// Checks the key and takes the fingerprint of the request: its kind, and the JSON that identifies it.
    pub(crate) fn new(key: &str, hold: Hold, kind: &str, request: &str) -> Result<Box<Keyed>> {
        check_key("key", key)?;
        Ok(Box::new(Keyed {
            key: key.to_owned(),
            fingerprint: Fingerprint::of_json(kind, request)?,
            hold: hold.checked()?,
        }))
    }
}

/// What an enqueue did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new job, under this id. It exists if and only if the caller's transaction commits.
    New(JobId),
    /// Its key is held by a job for the same request; nothing was written.
    Existing(Existing),
}

impl Enqueued {
    /// The job's id, new or not.
    pub fn id(&self) -> JobId {
        match self {
            Enqueued::New(id) => *id,
            Enqueued::Existing(existing) => existing.id,
        }
    }

    /// Whether this enqueue made the job.
    pub fn is_new(&self) -> bool {
        matches!(self, Enqueued::New(_))
    }
}

/// The job that already holds a key, as it was when it was read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Existing {
    /// The job.
    pub id: JobId,
    /// Its state. `None` when its history is gone: it ended longer ago than history is kept.
    pub state: Option<State>,
    /// How its last attempt ended, if one has.
    pub outcome: Option<Ended>,
    /// What its handler returned, if it is done.
    pub result: Option<serde_json::Value>,
}

crate::debug::debug_fields!(
    [] Existing, "Existing",
    id, state, outcome
);

impl Existing {
    /// Whether only the key is left: the operation is over, and its result is no longer known.
    pub fn is_pruned(&self) -> bool {
        self.state.is_none()
    }
}

/// SHA-256 over a request in a form that does not depend on spaces or the order of fields.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Of JSON text, and of a word that says what the request is for.
    pub(crate) fn of_json(what: &str, json: &str) -> Result<Fingerprint> {
        let invalid = |e: serde_json::Error| Error::invalid("request", format!("not valid JSON: {e}"));
        check_depth(json)?;
        let raw: &RawValue = serde_json::from_str(json).map_err(invalid)?;
        let mut text = String::with_capacity(json.len());
        canonical(raw, &mut text).map_err(invalid)?;
        Ok(Fingerprint::of_bytes(what, text.as_bytes()))
    }

    /// Of anything that can be written as JSON.
    pub(crate) fn of<T: Serialize + ?Sized>(what: &str, request: &T) -> Result<Fingerprint> {
        let json = serde_json::to_string(request)
            .map_err(|e| Error::invalid("request", format!("cannot be written as JSON: {e}")))?;
        Fingerprint::of_json(what, &json)
    }

    /// Of plain bytes.
    pub(crate) fn of_bytes(what: &str, bytes: &[u8]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(what.as_bytes());
        // Neither the word nor the JSON text contains a NUL, so the boundary between the two parts is unambiguous.
        hash.update([0]);
        hash.update(bytes);
        Fingerprint(hash.finalize().into())
    }

    /// As it is stored.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A digest that the caller computed.
    pub(crate) fn of_digest(digest: [u8; 32]) -> Fingerprint {
        Fingerprint(digest)
    }

    /// As it was stored; `None` when that is no fingerprint.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Fingerprint> {
        bytes.try_into().ok().map(Fingerprint)
    }
}

/// The first bytes: enough for a person to distinguish two of them.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// A request nested deeper than this is refused: its fingerprint is taken level by level.
const DEPTH_MAX: usize = 200;

fn check_depth(json: &str) -> Result<()> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Error::invalid(
                "request",
                format!("nested deeper than {DEPTH_MAX} levels"),
            ));
        }
    }
    Ok(())
}

/// Fields in order, no spaces, strings written one way; numbers keep their digits, which a parse could lose.
fn canonical(raw: &RawValue, out: &mut String) -> serde_json::Result<()> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            out.push('{');
            for (name, value) in fields {
                out.push_str(&serde_json::to_string(&name)?);
                out.push(':');
                canonical(value, out)?;
                out.push(',');
            }
            out.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            out.push('[');
            for item in items {
                canonical(item, out)?;
                out.push(',');
            }
            out.push(']');
        }
        Some(b'"') => {
            let string: String = serde_json::from_str(text)?;
            out.push_str(&serde_json::to_string(&string)?);
        }
        _ => out.push_str(text),
    }
    Ok(())
}

/// Callers invent keys: 1 to 250 bytes, no control characters.
pub(crate) fn check_key(field: &str, key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        let shown: String = key.chars().take(40).collect();
        let problem = format!("{shown:?} is not valid; use 1 to {KEY_BYTES_MAX} bytes without control characters");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

/// The number of a key in the database's space of advisory locks.
pub(crate) fn lock_no(what: &str, key: &str) -> i64 {
    let hash = Fingerprint::of_bytes(what, key.as_bytes());
    let mut first = [0u8; 8];
    first.copy_from_slice(&hash.0[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(json: &str) -> String {
        Fingerprint::of_json("charge", json).unwrap().to_string()
    }

    #[test]
    fn a_fingerprint_does_not_depend_on_spaces_or_the_order_of_fields() {
        assert_eq!(
            print(r#"{"a":1,"b":[1,{"c":"é"}]}"#),
            print(r#" { "b" : [1, {"c":"\u00e9"}], "a": 1 }"#)
        );
        assert_ne!(print("[1,2]"), print("[2,1]"));
        assert_ne!(print("[[1],2]"), print("[[1,2]]"));
        assert_ne!(
            print("100000000000000000000000000001"),
            print("100000000000000000000000000002")
        );
    }

    #[test]
    fn a_fingerprint_depends_on_what_it_is_a_request_for() {
        let of = |what| Fingerprint::of_json(what, "{}").unwrap();
        assert_ne!(of("charge"), of("refund"));
        assert!(Fingerprint::of_json("charge", "{").is_err());
    }

    #[test]
    fn a_hold_ends_only_while_its_job_is_in_no_place() {
        for state in [State::Ready, State::Leased, State::Case] {
            for hold in ["open", "period", "policy", "ever"] {
                assert!(
                    !hold_is_over(hold, true, Some(state)),
                    "{hold} of a job that is {state:?}"
                );
            }
        }
        for state in [None, Some(State::Finished)] {
            let over = |hold, passed| hold_is_over(hold, passed, state);
            assert!(over("open", false) && over("period", true));
            assert!(!over("period", false) && !over("policy", true) && !over("ever", true));
        }
    }

    #[test]
    fn a_period_is_above_zero_and_bounded() {
        assert!(Hold::For(Duration::from_secs(1)).checked().is_ok());
        for bad in [Duration::ZERO, Duration::MAX] {
            assert!(Hold::For(bad).checked().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_nested_beyond_reason_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Fingerprint::of_json("charge", &nested(DEPTH_MAX)).is_ok());
        assert!(Fingerprint::of_json("charge", &nested(100_000)).is_err());
        assert!(
            Fingerprint::of_json("charge", &format!("{:?}", "[".repeat(1000))).is_ok(),
            "in a string"
        );
    }

    #[test]
    fn a_key_is_any_short_text() {
        for good in ["order:42", "é ü", &"x".repeat(250)] {
            assert!(check_key("key", good).is_ok(), "{good}");
        }
        for bad in ["", "a\0b", "a\nb", &"x".repeat(251)] {
            assert!(check_key("key", bad).is_err(), "{bad:?}");
        }
    }
}
