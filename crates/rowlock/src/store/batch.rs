//! A transaction that several handlers use one after another.
//!
//! The engine writes nothing before the last handler has returned. Until then the transaction is *sealed*: a `commit`
//! sent by user code fails and rolls everything back. Without the seal, such a commit would keep what earlier handlers
//! wrote without their outcomes, and these handlers would run again.

use crate::error::Error;

/// How one handler's part of a shared transaction ended.
#[derive(Debug)]
#[must_use]
pub enum Parted {
    /// Kept or rolled back, as asked. The earlier parts are unchanged.
    Fine,
    /// The part cannot be kept, because a statement failed in it. It can still be rolled back.
    Spoilt(Error),
    /// This is not the transaction that the engine opened: user code ended that transaction.
    NotOurs,
}

/// The answer to a settle of all jobs of a shared transaction.
#[derive(Debug)]
#[must_use]
pub enum SettledShared {
    /// Written; it holds once the transaction commits. Queues with new work are listed by number.
    Applied { woken: Vec<i64> },
    /// Which tokens held, in input order; not all did. The transaction contains what the other handlers wrote, so it
    /// must not commit.
    Lost(Vec<bool>),
    /// This is not the transaction that the engine opened.
    NotOurs,
}
