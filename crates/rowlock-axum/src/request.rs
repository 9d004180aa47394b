//! What a request asks for: its key, and the digests by which a repeat is known.
//!
//! Both are stored, so their form stays: a repeat may come after an upgrade.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, Method, request::Parts},
};
use sha2::{Digest, Sha256};

use crate::response::Refusal;

/// The longest key in a header; the ledger's own key puts a little before it.
const KEY_BYTES_MAX: usize = 200;

const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// A request whose key and body have been read.
pub(crate) struct Asked {
    pub(crate) key: String,
    /// What is compared when the key comes again.
    pub(crate) print: [u8; 32],
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

/// The key in the header, bare or as a quoted string.
pub(crate) fn key_in(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut given = headers.get_all(KEY_HEADER).iter();
    let key = match (given.next(), given.next()) {
        (Some(key), None) => key.to_str().unwrap_or_default(),
        (None, _) => return Err(Refusal::key("the header is missing")),
        (Some(_), Some(_)) => return Err(Refusal::key("the header is given more than once")),
    };
    let bare = key
        .strip_prefix('"')
        .and_then(|key| key.strip_suffix('"'))
        .unwrap_or(key);
    let plain = bare.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    if bare.is_empty() || bare.len() > KEY_BYTES_MAX || !plain {
        return Err(Refusal::key("the value is not 1 to 200 visible ASCII characters"));
    }
    Ok(bare)
}

/// The fingerprint of a request: its method, its path with the query, and its body.
pub(crate) fn print_of(method: &Method, path: &str, body: &[u8]) -> [u8; 32] {
    let mut request = format!("{method}\0{path}\0").into_bytes();
    request.extend(digest("http body", body));
    digest("http request", &request)
}

/// A scope as part of a key. Hashed, so that a scope of any length fits and none can look like the beginning of a key;
/// half of the digest is long enough that no two scopes meet.
pub(crate) fn scope_mark(scope: &str) -> String {
    let digest = digest("scope", scope.as_bytes());
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is hashed is named first, so that equal bytes of two kinds differ.
fn digest(what: &str, bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(what.as_bytes());
    hash.update([0]);
    hash.update(bytes);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(given: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(KEY_HEADER, value.parse().unwrap());
        }
        key_in(&headers).ok().map(str::to_owned)
    }

    #[test]
    fn a_key_is_read_bare_and_quoted() {
        assert_eq!(key(&["8e03978e-40d5"]).as_deref(), Some("8e03978e-40d5"));
        assert_eq!(key(&["\"8e03978e-40d5\""]).as_deref(), Some("8e03978e-40d5"));
        let long = "x".repeat(200);
        assert_eq!(key(&[&long]), Some(long));
    }

    #[test]
    fn a_key_that_is_missing_or_odd_is_refused() {
        let long = "x".repeat(201);
        for bad in [
            &[][..],
            &["a", "b"],
            &[""],
            &["\"\""],
            &["a b"],
            &["\"a"],
            &["a\\b"],
            &[&long],
        ] {
            assert_eq!(key(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn keys_and_fingerprints_keep_their_stored_form() {
        assert_eq!(scope_mark("ann"), "f95acd62d8dcecb6aca49fd18d8f56f6");
        let print = print_of(&Method::POST, "/orders?now=1", b"oars");
        let print: String = print.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            print,
            "0efb145edd959970de76a663cdb136da09f3034f5e9376860504ea5bcd11d494"
        );
    }
}
