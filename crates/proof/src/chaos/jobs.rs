//! The jobs of the workloads. Each carries the number of the order that it was enqueued with, in one commit.
//!
//! Every one that ends well has left exactly one row in a ledger without a unique index, so that a double shows.

use std::time::Duration;

use rowlock::Job;
use serde::{Deserialize, Serialize};

/// Attempts of jobs that must end well whatever happens to their workers.
const MANY: i32 = 100;

/// The queue of jobs that ask for more memory than there is.
pub const MEMORY: &str = "memory";

/// Accounts that money is moved between.
pub const ACCOUNTS: i64 = 50;

/// What each account has at first.
pub const OPENING_BALANCE: i64 = 1_000;

/// Links of one chain: one, one, then two next to each other to the end.
pub const LINKS: usize = 8;

/// What a [`Dial`] depends on.
pub const LINE: &str = "line";

/// How many may probe it at the same time after an outage.
pub const LINE_PROBES: usize = 2;

/// How many groups of [`Posting`]s there are, for all producers.
pub const GROUPS: u32 = 12;

/// The kind that nobody runs.
pub const NOBODYS: &str = "nobodys";

/// Atomic: moves money from one account to another.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "transfer", attempts = 100)]
pub struct Transfer {
    /// The order.
    pub order: i64,
    /// Whose money.
    pub from: i64,
    /// Who gets it.
    pub to: i64,
    /// How much.
    pub amount: i64,
    /// How long it takes.
    pub ms: u64,
}

/// Atomic, in batches: as [`Transfer`], without the time.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "tally", attempts = 100)]
pub struct Tally {
    /// The order.
    pub order: i64,
    /// Whose money.
    pub from: i64,
    /// Who gets it.
    pub to: i64,
}

/// Atomic: five links deep, two next to each other from the third on.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "link", attempts = 100)]
pub struct Link {
    /// The order.
    pub order: i64,
    /// How deep, from 1.
    pub depth: u8,
}

/// Staged: charges the order at a till.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "charge", attempts = 100)]
pub struct Charge {
    /// The order.
    pub order: i64,
    /// At the till that does not know keys, where a doubt is parked.
    pub park: bool,
}

/// Staged: looks at a thing, takes a while, and changes it only if it is as it was seen.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "guarded", attempts = 100)]
pub struct Guarded {
    /// The order.
    pub order: i64,
    /// The thing.
    pub entity: i64,
    /// How long it thinks.
    pub ms: u64,
}

/// Atomic: enqueued by several concurrent producers under one key.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "keyed", attempts = 100)]
pub struct Keyed {
    /// What the producers share.
    pub slot: i64,
}

/// Staged: needs a line that is down now and then, behind a breaker.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "dial", attempts = 100)]
pub struct Dial {
    /// The order.
    pub order: i64,
}

/// Staged: people delay, cancel, retire, reopen and re-run it.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "errand", attempts = 100)]
pub struct Errand {
    /// The order.
    pub order: i64,
    /// How long it takes.
    pub ms: u64,
}

/// Atomic, in a group: after those before it, and beside none of them.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "posting", attempts = 100)]
pub struct Posting {
    /// The order.
    pub order: i64,
}

/// Staged: ends its process on every attempt.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "poison", attempts = 3)]
pub struct Poison {
    /// The order.
    pub order: i64,
}

/// Atomic: writes, and fails on every attempt, with an error that not every database can store.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "doomed", attempts = 4)]
pub struct Doomed {
    /// The order.
    pub order: i64,
}

/// How a [`Trip`] goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mishap {
    /// It panics.
    Panic,
    /// It does not come back, and is cut off at its time limit.
    Hang,
    /// It asks for more memory than there is, where the worker has a limit.
    Glut,
}

impl Mishap {
    /// As the logs and tables name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mishap::Panic => "panic",
            Mishap::Hang => "hang",
            Mishap::Glut => "memory limit",
        }
    }
}

/// Atomic: something goes wrong in the middle of its first attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trip {
    /// The order.
    pub order: i64,
    /// What.
    pub mishap: Mishap,
}

impl Job for Trip {
    const KIND: &'static str = "trip";
    const ATTEMPTS_MAX: i32 = MANY;
    const TIME_LIMIT: Duration = Duration::from_millis(1_500);
}

/// No worker knows it: it must stay, and be seen.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "nobodys", attempts = 1)]
pub struct Nobodys {
    /// The order.
    pub order: i64,
}
