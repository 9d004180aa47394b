//! A transaction that several handlers use one after another.
//!
//! Nothing of the engine's is written before the last of them has returned, so until then the transaction is *sealed*: a
//! `commit` sent by user code fails and rolls everything back. Else it would keep what the handlers before it wrote,
//! without their outcomes, and they would be run again.

use crate::error::Error;

/// How one handler's part of a shared transaction ended.
#[derive(Debug)]
#[must_use]
pub enum Parted {
    /// Kept, or taken back, as asked; the parts before it are as they were.
    Fine,
    /// It cannot be kept: a statement failed in it. Taking it back is still possible.
    Spoilt(Error),
    /// This is not the transaction the engine opened: user code ended that one.
    NotOurs,
}

/// The answer to a settle of all jobs of a shared transaction.
#[derive(Debug)]
#[must_use]
pub enum SettledShared {
    /// Written; it holds once the transaction commits. Queues that got new work are named by number.
    Applied { woken: Vec<i64> },
    /// Not every token held, in input order. What the others' handlers wrote is in the transaction, so it must not commit.
    Lost(Vec<bool>),
    /// This is not the transaction the engine opened.
    NotOurs,
}
