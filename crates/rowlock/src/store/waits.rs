//! Waits: jobs that wait for a name, names that are completed, and callers that wait for a job.
//!
//! A job that waits for a name never runs before the name is completed. Where the transactions that enqueue and
//! complete are open at the same time, neither sees the other; the sweep brings the two together.

use super::rows::{Columns, Noun};
use crate::state::{Ended, State};

/// What a case says whose wait was ended by its limit, before the name.
pub const NOT_COMPLETED: &str = "its wait limit passed before this was completed: ";

/// What a job says that was cancelled in its wait, before the name.
pub const EXPIRED_WAITING: &str = "expired while waiting for: ";

/// What a round of a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Waiting jobs moved to ready, because their name was completed by somebody who did not see them; or cases named.
    pub moved: usize,
    /// Ended by their limit.
    pub over: Vec<WaitOver>,
    /// Whether the sweep of groups has something to do.
    pub groups: bool,
    /// Whether errors of cases have no name yet.
    pub cases: bool,
}

/// A wait that its limit ended.
#[derive(Debug)]
pub struct WaitOver {
    pub id: i64,
    pub queue: String,
    pub kind: String,
    pub ended: Ended,
    /// What did not come.
    pub reason: String,
}

/// Where a job stands, for somebody who waits for its end.
#[derive(Debug)]
pub struct Stand {
    pub id: i64,
    pub state: State,
    pub last: Option<Ended>,
    pub error: Option<String>,
    pub result: Option<serde_json::Value>,
    /// In a chain: it was enqueued because another link was retired.
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
