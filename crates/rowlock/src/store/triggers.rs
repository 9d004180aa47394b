//! The storage contract for hints from outside: jobs that stand untriggered, and those that nobody has taken.

use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Cursor, Fut,
    rows::{Columns, Noun},
};
use crate::{
    job::untriggered,
    observe::{Standing, Untaken},
};

/// A job that was made due just now.
#[derive(Debug)]
pub struct Pulled {
    pub id: i64,
    /// How often it had been claimed.
    pub epoch: i64,
}

/// Hints on connections of the store's own.
pub trait Triggers: Send + Sync {
    /// Makes those due that stand untriggered, where the uid is theirs; says which they are.
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>>;
    /// Where each stands that there is.
    fn standing<'a>(&'a self, ids: &'a [i64]) -> Fut<'a, Vec<Standing>>;
    /// Those in ready that nobody has taken.
    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>>;
}

impl Noun for Standing {
    fn of(row: &impl Columns) -> sqlx::Result<Standing> {
        Ok(Standing {
            id: row.read("id")?,
            uid: row.read("uid")?,
            queue: row.read("queue")?,
            group: row.read("in_group")?,
            state: row.read("state")?,
            epoch: row.read("epoch")?,
            due_at: row.read("due_at")?,
            due: row.read("due")?,
        })
    }
}

/// Where a page of untaken jobs begins, and the due time of those that stand untriggered if these are asked for.
pub fn untaken_from(which: &Untaken) -> (Cursor, Option<Timestamp>) {
    let never = which.untriggered.then(untriggered);
    let first = (never.unwrap_or(Cursor::START.due_at), Cursor::START.id);
    let (due_at, id) = which.after.unwrap_or(first);
    (Cursor { due_at, id }, never)
}
