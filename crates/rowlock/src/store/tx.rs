//! Transactions: how they are opened, limited and ended.

use std::time::Duration;

use crate::lease::Token;

/// Time limits on connections, derived from the lease so that a frozen holder keeps no lock past the lease.
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

/// The isolation level of a handler's transaction. SQLite always uses serializable, whatever is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it. Guards need this.
    #[default]
    ReadCommitted,
    /// Every statement sees what was committed before the first. A write to a row that has changed since fails the
    /// attempt, which is retried soon.
    RepeatableRead,
    /// As if handlers at this level ran one after the other. Attempts that conflict are retried soon.
    Serializable,
}

impl Isolation {
    /// The name in PostgreSQL.
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
    /// The same, sealed, for handlers that run one after the other.
    Shared(Opening),
    /// To read from one snapshot.
    Read(Timing),
}

/// The job of the transaction to open, and how to open it.
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
