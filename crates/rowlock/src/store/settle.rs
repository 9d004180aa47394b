//! Settlements: how attempts ended, and the result of storing that.

use std::time::Duration;

use crate::{
    job::Draft,
    lease::Token,
    state::{Ended, State},
};

/// How one attempt ended and what follows from it; created by `settle.rs`, applied by SQL.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub token: Token,
    pub ended: Ended,
    /// The result of `state::after`.
    pub to: State,
    /// How far in the future the due time is, for a job that goes back to ready.
    pub delay: Duration,
    /// Free of NUL and bounded in length.
    pub error: Option<String>,
    /// JSON.
    pub result: Option<String>,
    /// Jobs to enqueue in the same commit, links of the chain included.
    pub next: Vec<Draft>,
    /// The group whose turn passes to the next job in the same commit.
    pub turn: Option<i64>,
}

/// The jobs among these that have next links and may have been done before. A job in its first epoch cannot have been
/// done before.
pub fn again<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Vec<i64> {
    settlements
        .filter(|s| !s.next.is_empty() && s.token.epoch > 1)
        .map(|s| s.token.id)
        .collect()
}

/// The answer to a settle inside a handler's transaction.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum SettledIn {
    /// Written; it holds once the transaction commits. Queues with new work are listed by number.
    Applied { woken: Vec<i64> },
    /// The token matched nothing; the whole transaction must roll back.
    LeaseLost,
    /// This is not the transaction that the engine opened: user code ended that transaction.
    NotOurs,
}

/// The outcome of a commit whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It committed, with this outcome.
    Ended(Ended),
    /// It did not commit, and the lease still holds.
    StillLeased,
    /// It did not commit, and the lease is gone.
    Lost,
}
