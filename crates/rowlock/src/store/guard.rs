//! What guards ask of a store, on a connection that is inside the caller's or a handler's transaction.

use super::Fut;
use crate::key::lock_no;

/// The number that stands for a key among the database's locks, in a space of the guards' own.
pub fn lock_number(key: &str) -> i64 {
    lock_no("guard", key)
}

/// One room's guards, by its type of connection.
///
/// What every room promises: a lock is held until the transaction ends, and what is read after it was taken is newer than
/// every commit of those who held it before.
pub trait Guarding<C>: Send + Sync {
    /// Locks what these keys protect, in an order that is the same for everyone. `Error::Isolation` where a later read
    /// would be stale; nothing is locked then and the transaction stays good.
    fn guard_lock<'a>(&'a self, conn: &'a mut C, keys: &'a [&'a str]) -> Fut<'a, ()>;
    /// The key's counter; 0 when nobody has raised it yet.
    fn guard_version<'a>(&'a self, conn: &'a mut C, key: &'a str) -> Fut<'a, i64>;
    /// Raises the key's counter under its lock, and with `seen` only if it still stands there. What it is now, or `None`
    /// when it had moved on.
    fn guard_raise<'a>(&'a self, conn: &'a mut C, key: &'a str, seen: Option<i64>) -> Fut<'a, Option<i64>>;
}
