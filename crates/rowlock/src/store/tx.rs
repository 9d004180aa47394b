//! Transactions: how they are opened, limited and ended.

use std::time::Duration;

use crate::lease::Token;

/// Time limits on connections, derived from the lease so that a frozen holder keeps no lock past it.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub lease: Duration,
    /// Idle-in-transaction and lock timeout; at most half the lease.
    pub lock: Duration,
}

impl Timing {
    pub fn of_lease(lease: Duration) -> Timing {
        Timing { lease, lock: lease / 2 }
    }
}

/// The isolation level of a handler's transaction. SQLite has one level, serializable, whatever is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it. Guards need this.
    #[default]
    ReadCommitted,
    /// Every statement sees what was committed before the first; a write that met a newer row fails the attempt, which
    /// is tried again soon.
    RepeatableRead,
    /// As if handlers at this level ran one after the other; those that did not are tried again soon.
    Serializable,
}

impl Isolation {
    /// As PostgreSQL says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

/// How a transaction is to be opened.
#[derive(Clone, Copy)]
pub enum Open {
    /// For a handler, with its time limits, its marker and a savepoint.
    Handler(Opening),
    /// The same, sealed, for handlers that follow each other.
    Shared(Opening),
    /// To read what was committed before one moment.
    Read(Timing),
}

/// Whose transaction is to be opened, and how.
#[derive(Clone, Copy)]
pub struct Opening {
    pub token: Token,
    pub timing: Timing,
    pub level: Isolation,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxEnd {
    Commit,
    RollBack,
}
