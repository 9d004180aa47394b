//! Settlements: how attempts ended, and what became of that.

use std::time::Duration;

use crate::{
    job::Draft,
    lease::Token,
    state::{Ended, State},
};

/// How one attempt ended and what follows from it; made by `settle.rs`, applied by SQL.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub token: Token,
    pub ended: Ended,
    /// What `state::after` says.
    pub to: State,
    /// How far ahead the due time lies, for a job that goes back to ready.
    pub delay: Duration,
    /// Free of NUL and bounded in length.
    pub error: Option<String>,
    /// JSON.
    pub result: Option<String>,
    /// Jobs to enqueue in the same commit, links of the chain included.
    pub next: Vec<Draft>,
    /// The group whose turn passes on in the same commit.
    pub turn: Option<i64>,
}

/// The jobs among these that have next links, and may have been done before: nobody is done in the first epoch twice.
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
    /// Written; it holds once the transaction commits. Queues that got new work are named by number.
    Applied { woken: Vec<i64> },
    /// The token matched nothing; the whole transaction must roll back.
    LeaseLost,
    /// This is not the transaction the engine opened: user code ended that one.
    NotOurs,
}

/// What became of a commit whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It committed, with this outcome.
    Ended(Ended),
    /// It did not commit, and the lease still stands.
    StillLeased,
    /// It did not commit, and the lease is gone.
    Lost,
}
