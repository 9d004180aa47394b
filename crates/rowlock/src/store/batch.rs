//! What a transaction that several handlers use one after another needs from a room.
//!
//! Nothing of the engine's is written before the last of them has returned, so until then the transaction is *sealed*: a
//! `commit` sent by user code fails and rolls everything back. Else it would keep what the handlers before it wrote,
//! without their outcomes, and they would be run again.

use super::{Fut, Isolation, Room, Settlement, Timing};
use crate::{error::Error, lease::Token};

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

/// A room in which handlers can share a transaction.
pub trait Batching: Room {
    /// As [`Room::begin`], sealed.
    fn begin_shared<'a>(
        store: &'a Self::Store,
        marker: &'a Token,
        timing: Timing,
        level: Isolation,
    ) -> Fut<'a, Self::Held>;
    /// Keeps what was written since the savepoint, or takes it back. Then there is a savepoint for one `more`, or the
    /// seal is broken and no user code may run any more.
    fn part<'a>(store: &'a Self::Store, held: &'a mut Self::Held, keep: bool, more: bool) -> Fut<'a, Parted>;
    /// Writes all outcomes, next links and compensations as the last statements of the transaction.
    fn settle_shared<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared>;
    /// Rolls back, so that its locks are gone when this returns, and gives the connection back where that is possible.
    fn undo(store: &Self::Store, held: Self::Held) -> Fut<'_, ()>;
}
