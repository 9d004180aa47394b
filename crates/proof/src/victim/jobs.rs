//! The jobs that victims run. Each exists for what can go wrong in the middle of it.

use std::path::PathBuf;

use rowlock::Job;
use serde::{Deserialize, Serialize};

/// Atomic: adds one to an account, stops at `mid-handler`, writes the ledger, goes on with [`Follow`].
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "atomic", attempts = 25)]
pub struct Atomic {
    /// The account that it adds one to.
    pub account: i64,
}

/// Atomic, in batches where the orders say so: does what [`Atomic`] does.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "together", attempts = 25)]
pub struct Together {
    /// The account that it adds one to.
    pub account: i64,
}

/// Atomic: writes the ledger and fails on the first attempt, succeeds and goes on with [`Follow`] on the second.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "failing", attempts = 25)]
pub struct Failing {}

/// Staged: looks, calls the provider (stopping at `outside` before it has the reply), writes the ledger, goes on with
/// [`Follow`].
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "staged", attempts = 25)]
pub struct Staged {}

/// Staged: calls the provider, has nothing to write, goes on with [`Follow`]; settled in a batch.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "batched", attempts = 25)]
pub struct Batched {}

/// Staged: charges an order at the till, and writes its receipt to the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "charge", attempts = 25)]
pub struct Charge {
    /// The order.
    pub order: i64,
    /// Never call again while it is not known whether the order was charged.
    pub park: bool,
}

/// Staged: calls the provider and parks when it is unknown whether the call happened, writes the ledger, goes on with
/// [`Follow`].
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "parked", attempts = 25)]
pub struct Parked {}

/// The next link: atomic, writes the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "follow", attempts = 25)]
pub struct Follow {}

/// Atomic: notes its start, writes the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "plain", attempts = 25)]
pub struct Plain {}

/// Staged: notes its start, nothing else.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "quick", attempts = 25)]
pub struct Quick {}

/// Staged: takes its time on the first attempt, calls the provider, writes the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "slow", attempts = 3)]
pub struct Slow {
    /// How long.
    pub ms: u64,
}

/// Staged: notes its start and kills its own process, on the first attempt after a while.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "abort", attempts = 3)]
pub struct Abort {
    /// How long.
    pub ms: u64,
}

/// Staged, in the queue `held`: notes its start; on the first attempt it goes on until the worker stops.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "hold", queue = "held", attempts = 25)]
pub struct Hold {}

/// Atomic: writes the ledger, and calls the provider in an after-commit hook.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "hooked", attempts = 25)]
pub struct Hooked {}

/// Atomic: writes its number to the ledger, which shows whether another job has the same id.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "numbered", attempts = 25)]
pub struct Numbered {
    /// The number.
    pub no: i64,
}

/// Staged: waits until there is a file, and writes its number to the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "gated", attempts = 25)]
pub struct Gated {
    /// The number.
    pub no: i64,
    /// The file.
    pub gate: PathBuf,
}

/// Atomic, on PostgreSQL: waits for the advisory lock of its number, and writes the number to the ledger.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "behind", attempts = 25)]
pub struct Behind {
    /// The number.
    pub no: i64,
}

/// Atomic: fails on its first attempts, so many of them; else writes the ledger, and goes on with [`Follow`].
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "moody", attempts = 5)]
pub struct Moody {
    /// How many.
    pub fails: i32,
}
