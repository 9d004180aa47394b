//! Recovery, upkeep, and what happened to servers and connections.

use std::time::Duration;

use crate::lease::{Token, WorkerId};

/// What a check of the workers' heartbeats found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Workers that this call declared dead.
    pub dead: Vec<WorkerId>,
    /// Whether any worker is dead, no matter which call declared it.
    pub any: bool,
    /// When the next suspected worker may be declared dead, counted from now.
    pub look_in: Option<Duration>,
}

/// A lease that recovery ended.
#[derive(Clone, Debug)]
pub struct Expired {
    pub token: Token,
    pub attempt: i32,
    /// Out of attempts: the job became a case.
    pub retired: bool,
    pub kind: String,
    pub queue_no: i64,
    pub queue: String,
    /// The time since its worker's last heartbeat.
    pub silent: Duration,
    /// The group of the job, if the group goes on without the job.
    pub group_no: Option<i64>,
}

/// What a round of upkeep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bodies of finished jobs whose history was over.
    pub jobs: u64,
    /// Cases that were not decided in time, with their bodies.
    pub cases: u64,
    /// Enqueue keys whose hold was over.
    pub keys: u64,
    /// Entries of the ledger whose hold was over.
    pub ledger: u64,
}

/// Since when to check for a failover.
#[derive(Clone, Copy, Debug)]
pub enum Since {
    /// Since this worker was registered.
    Registered(WorkerId),
    /// Since this connection was opened; [`InTx::holder`](super::InTx::holder) returned its number.
    Opened(i64),
}

/// What [`Store::cut`](super::Store::cut) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// User code had ended the transaction, so its writes may be committed.
    pub by_hand: bool,
    /// The connection is gone: the statements sent on it have run or will never run.
    pub gone: bool,
}

/// What a round of [`Store::sweep`](super::Store::sweep) does.
#[derive(Clone, Copy, Debug)]
pub enum Sweep {
    /// Ends waiting jobs whose limit has passed, with the compensations of those that are retired. With `names`, also
    /// moves jobs whose name is completed, which reads each waiting job. Reports whether the other sweeps have work.
    Waits { names: bool },
    /// Gives groups without a head their next head, removes groups without jobs, and holds back what is paused.
    Groups,
    /// Gives a name to the errors of cases that have none.
    Cases,
}
