//! What the peer programs share: one protocol, one way of measuring.
//!
//! A peer program says how to connect, enqueue and start a worker (`Peer`); `verbs` times it, so that
//! every peer is measured by the same code. Nothing here runs inside a peer's own loops except `handled`,
//! which is one atomic addition.
#![forbid(unsafe_code)]

mod ask;
mod peer;
mod tally;
mod verbs;

pub use ask::{Ask, dial, emit};
pub use peer::{Kind, Peer, Producers, Tuning, Work};
pub use tally::{handled, stuck_forever};
pub use verbs::main;

/// The version of `name` that the peer's committed lock file pins, so that `about` cannot go stale.
pub fn locked_version(lock: &str, name: &str) -> String {
    let wanted = format!("name = \"{name}\"");
    let mut lines = lock.lines();
    while let Some(line) = lines.next() {
        if line == wanted {
            let version = lines.next().unwrap_or_default();
            return version.trim_start_matches("version = ").trim_matches('"').to_owned();
        }
    }
    "unknown".to_owned()
}

/// Letters that bring `{"number":…,"fill":"…"}` to about `payload` bytes; they differ from job to job, so
/// that neither TOAST nor WAL compression gets them for nothing.
pub fn fill(number: i64, payload: usize) -> String {
    const AROUND: usize = r#"{"number":0000,"fill":""}"#.len();
    let mut seed = (number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut letters = String::with_capacity(payload);
    for place in 0..payload.saturating_sub(AROUND) {
        if place % 12 == 0 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
        }
        let letter = (seed >> ((place % 12) * 5)) & 31;
        letters.push(char::from(b'a' + (letter % 26) as u8));
    }
    letters
}
