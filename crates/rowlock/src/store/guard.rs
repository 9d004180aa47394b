//! Guards: locks by key, and counters of the data that they protect.

use crate::key::lock_no;

/// The number of the database lock for a key, in a number space that only guards use.
pub fn lock_number(key: &str) -> i64 {
    lock_no("guard", key)
}

/// A request to a guard, on a connection that is inside the caller's or a handler's transaction.
#[derive(Clone, Copy, Debug)]
pub enum GuardAsk<'a> {
    /// Locks what these keys protect, in an order that is the same for every caller. `Error::Isolation` where a later
    /// read would be stale; then nothing is locked, and the transaction stays usable.
    Lock(&'a [&'a str]),
    /// The key's counter; 0 when it has never been raised.
    Read(&'a str),
    /// Raises the key's counter under its lock; with `seen`, only if the counter still has this value.
    Raise { key: &'a str, seen: Option<i64> },
}
