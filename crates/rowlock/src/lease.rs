//! A lease: ownership of a job for one attempt, and the token that proves it.
//!
//! Every write to a claimed job carries the token. A token that no longer matches a row means that the lease is lost,
//! which is a value, never an error.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::{fault::mutant, group::Member};

/// A worker process, identified by a random number that it made itself. A host name, a process id or a sequence would
/// come back after a restart or a failover, and an old token must not fit a new owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct WorkerId(pub(crate) i64);

impl WorkerId {
    pub(crate) fn random() -> WorkerId {
        if mutant!("identity by host") {
            return WorkerId(42);
        }
        WorkerId(fastrand::i64(1..=i64::MAX))
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{:016x}", self.0)
    }
}

/// The proof of a lease. The epoch rises with every claim of the job, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The job.
    pub id: i64,
    /// Which claim of the job; a fencing number that may be passed to external systems.
    pub epoch: i64,
    /// Who claimed it.
    pub worker: WorkerId,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id, self.epoch, self.worker)
    }
}

/// A job that a worker holds: the token, the attempt, and the body.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub token: Token,
    pub attempt: i32,
    pub attempts_max: i32,
    pub queue_no: i64,
    pub kind_no: i64,
    pub priority: i16,
    pub due_at: Timestamp,
    /// By the database's clock, as `due_at` is.
    pub claimed_at: Timestamp,
    /// Its last worker was lost; it runs alone.
    pub alone: bool,
    /// Past its expiry when claimed, by the database's clock.
    pub expired: bool,
    /// `None` when the body is missing; the job then becomes a case.
    pub body: Option<Body>,
}

/// What was enqueued.
#[derive(Clone, Debug)]
pub struct Body {
    pub uid: Uuid,
    pub kind: String,
    pub version: i32,
    pub queue: String,
    pub payload: String,
    pub chain: Option<i64>,
    pub position: i32,
    pub created_at: Timestamp,
    pub member: Option<Member>,
    pub trace: Option<String>,
}
