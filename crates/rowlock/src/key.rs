//! Keys and fingerprints: the caller's name for a logical operation, and what tells two requests apart.
//!
//! A key is equal on every repeat of the same operation. A fingerprint is taken over the request, so that the same key
//! with another request is noticed instead of answered.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The longest key, in bytes: it is the first column of a unique index.
const KEY_BYTES_MAX: usize = 250;

/// How long a key is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// As long as the workers keep keys (see `Worker::keep`), and at least while its job is in any place.
    #[default]
    Policy,
    /// While its job is ready, waiting, leased or a case. Enqueue keys only.
    WhileOpen,
    /// At least this long, and at least while its job is in any place.
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
}

/// SHA-256 over a request in a form that does not depend on spaces or the order of fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Of JSON text, and of a word that says what it is a request for.
    pub(crate) fn of_json(what: &str, json: &str) -> Result<Fingerprint> {
        let invalid = |e: serde_json::Error| Error::invalid("request", format!("not json: {e}"));
        let raw: &RawValue = serde_json::from_str(json).map_err(invalid)?;
        let mut text = String::with_capacity(json.len());
        canonical(raw, &mut text).map_err(invalid)?;
        Ok(Fingerprint::of_bytes(what, text.as_bytes()))
    }

    /// Of anything that can be written as JSON.
    pub(crate) fn of<T: Serialize + ?Sized>(what: &str, request: &T) -> Result<Fingerprint> {
        let json = serde_json::to_string(request)
            .map_err(|e| Error::invalid("request", format!("cannot be written as json: {e}")))?;
        Fingerprint::of_json(what, &json)
    }

    /// Of plain bytes.
    pub(crate) fn of_bytes(what: &str, bytes: &[u8]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(what.as_bytes());
        // No word and no JSON text holds a NUL, so the two parts cannot run into each other.
        hash.update([0]);
        hash.update(bytes);
        Fingerprint(hash.finalize().into())
    }

    /// As it is stored.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Half of it: short enough for a part of a key, and still long enough that no two meet.
    #[cfg(feature = "axum")]
    pub(crate) fn half(&self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// As it was stored; `None` when that is no fingerprint.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Fingerprint> {
        bytes.try_into().ok().map(Fingerprint)
    }
}

/// The first bytes: enough for a person to tell two apart.
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

/// Keys are what callers make up: 1 to 250 bytes, no control characters.
pub(crate) fn check_key(field: &str, key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        let shown: String = key.chars().take(40).collect();
        let problem = format!("{shown:?} is not 1 to {KEY_BYTES_MAX} bytes without control characters");
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
    fn a_key_is_any_short_text() {
        for good in ["order:42", "é ü", &"x".repeat(250)] {
            assert!(check_key("key", good).is_ok(), "{good}");
        }
        for bad in ["", "a\0b", "a\nb", &"x".repeat(251)] {
            assert!(check_key("key", bad).is_err(), "{bad:?}");
        }
    }
}
