//! The storage contract for waits: jobs that wait for a name, names that are completed, and callers that wait for a job.
//!
//! A job that waits for a name never runs before the name is completed. Where the transactions that enqueue and
//! complete are open at the same time, neither sees the other; the sweep brings the two together.

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::state::{Ended, State};

/// What a case says whose wait was ended by its limit, before the name.
pub const NOT_COMPLETED: &str = "its wait limit passed before this was completed: ";

/// What a job says that was cancelled in its wait, before the name.
pub const EXPIRED_WAITING: &str = "expired while waiting for: ";

/// What a sweep of waiting jobs did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Moved to ready, because their name was completed by somebody who did not see them.
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

/// The engine's verbs for waits, on connections of the store's own.
pub trait Waits: Send + Sync {
    /// [`Completing::complete_in`] in a commit of its own; the wake is sent after it.
    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>>;
    /// Ends up to so many waiting jobs whose limit has passed, with the compensations of those that are retired; and,
    /// with `names`, moves as many whose name is completed. Wakes are sent after it. With nothing to do it costs a look at
    /// a few index entries; with `names`, at each waiting job.
    fn sweep_waits(&self, max: i32, names: bool) -> Fut<'_, Swept>;
    /// Where a job stands; with `chain`, every link of its chain in order. Empty when there is no such job.
    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>>;
}

/// The verbs for waits on a caller's or handler's connection.
pub trait Completing<C>: Send + Sync {
    /// Completes a name in whatever transaction is open: how many waiting jobs it moved to ready, or `None` when the
    /// name was completed before. The wake travels with the commit.
    fn complete_in<'a>(&'a self, conn: &'a mut C, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>>;
    /// The JSON that the name was completed with that this job waits for.
    fn answer_in<'a>(&'a self, conn: &'a mut C, id: i64) -> Fut<'a, Option<String>>;
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
