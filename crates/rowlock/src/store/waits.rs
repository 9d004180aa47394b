//! Waits: jobs that wait for a name, names that are completed, and callers that wait for a job.
//!
//! A job that waits for a name never runs before the name is completed. If the enqueuing and the completing transaction
//! are open at the same time, neither sees the other. The sweep finds such jobs.

use super::rows::{Columns, Noun};
use crate::state::{Ended, State};

/// The error of a case whose wait was ended by its limit; the name follows.
pub const NOT_COMPLETED: &str = "its wait limit passed before this was completed: ";

/// The reason of a job that was cancelled in its wait; the name follows.
pub const EXPIRED_WAITING: &str = "expired while waiting for: ";

/// What a round of a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Waiting jobs moved to ready, because the transaction that completed their name did not see them; or cases named.
    pub moved: usize,
    /// Jobs whose wait was ended by its limit.
    pub over: Vec<WaitOver>,
    /// Whether the sweep of groups has something to do.
    pub groups: bool,
    /// Whether errors of cases have no name yet.
    pub cases: bool,
}

/// A wait that was ended by its limit.
#[derive(Debug)]
pub struct WaitOver {
    pub id: i64,
    pub queue: String,
    pub kind: String,
    pub ended: Ended,
    /// Why the wait ended, with the name that was not completed.
    pub reason: String,
}

/// The place of a job, for a caller that waits for its end.
#[derive(Debug)]
pub struct Stand {
    pub id: i64,
    pub state: State,
    pub last: Option<Ended>,
    pub error: Option<String>,
    pub result: Option<serde_json::Value>,
    /// In a chain: the job was enqueued because another link was retired.
    pub compensates: bool,
}

impl Noun for Stand {
    fn of(row: &impl Columns) -> sqlx::Result<Stand> {
        Ok(Stand {
            id: row.read("id")?,
            state: row.read("state")?,
            last: row.read("last_outcome")?,
            error: row.read("last_error")?,
            result: row.read("result")?,
            compensates: row.read("compensates")?,
        })
    }
}
