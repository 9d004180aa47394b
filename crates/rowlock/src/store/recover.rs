//! Recovery, upkeep, and what happens to servers and connections.

use std::time::Duration;

use crate::lease::{Token, WorkerId};

/// What a look at the workers' beats found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Declared dead just now.
    pub dead: Vec<WorkerId>,
    /// Somebody is dead, by whomever declared.
    pub any: bool,
    /// When the next who is suspected may be declared dead, counted from now.
    pub look_in: Option<Duration>,
}

/// A lease that recovery ended.
#[derive(Clone, Debug)]
pub struct Expired {
    pub token: Token,
    pub attempt: i32,
    /// Out of attempts: it became a case.
    pub retired: bool,
    pub kind: String,
    pub queue_no: i64,
    pub queue: String,
    /// Since its worker's last beat.
    pub silent: Duration,
    /// Its group, where that goes on without it.
    pub group_no: Option<i64>,
}

/// What a round of upkeep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bodies of finished jobs whose history was over.
    pub jobs: u64,
    /// Cases that nobody decided on in time, with their bodies.
    pub cases: u64,
    /// Enqueue keys whose hold was over.
    pub keys: u64,
    /// Entries of the ledger whose hold was over.
    pub ledger: u64,
}

/// Since when a failover is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Since {
    /// This worker was registered.
    Registered(WorkerId),
    /// This connection, by what [`InTx::holder`](super::InTx::holder) said, was opened.
    Opened(i64),
}

/// What [`Store::cut`](super::Store::cut) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// User code had ended the transaction, so that what it wrote may stand.
    pub by_hand: bool,
    /// The connection is gone: what was sent on it has run or never will.
    pub gone: bool,
}

/// What a round of [`Store::sweep`](super::Store::sweep) is about.
#[derive(Clone, Copy, Debug)]
pub enum Sweep {
    /// Ends waiting jobs whose limit has passed, with the compensations of those that are retired; and, with `names`, moves
    /// those whose name is completed, which costs a look at each waiting job. Tells whether the other sweeps have work.
    Waits { names: bool },
    /// Gives groups without a head their next one, removes those that nobody is in, and holds back what is paused.
    Groups,
    /// Names the errors of cases that have none.
    Cases,
}
