//! Guards: locks by key, and counters of what they protect.

use crate::key::lock_no;

/// The number that stands for a key among the database's locks, in a space of the guards' own.
pub fn lock_number(key: &str) -> i64 {
    lock_no("guard", key)
}

/// What is asked of guards, on a connection that is inside the caller's or a handler's transaction.
#[derive(Clone, Copy, Debug)]
pub enum GuardAsk<'a> {
    /// Locks what these keys protect, in an order that is the same for everyone. `Error::Isolation` where a later read
    /// would be stale; nothing is locked then and the transaction stays good.
    Lock(&'a [&'a str]),
    /// The key's counter; 0 when nobody has raised it yet.
    Read(&'a str),
    /// Raises the key's counter under its lock, and with `seen` only if it still stands there.
    Raise { key: &'a str, seen: Option<i64> },
}
