//! Hints from outside: untriggered jobs, and jobs that no worker has claimed.

use jiff::Timestamp;

use super::{
    Cursor,
    rows::{Columns, Noun},
};
use crate::{
    job::untriggered,
    observe::{Standing, Untaken},
};

/// A job that this call made due.
#[derive(Debug)]
pub struct Pulled {
    pub id: i64,
    /// How often the job had been claimed.
    pub epoch: i64,
}

/// Which jobs to read.
#[derive(Clone, Copy, Debug)]
pub enum StandingQuery<'a> {
    Of(&'a [i64]),
    /// The jobs in ready that no worker has claimed.
    Untaken(&'a Untaken),
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

/// Where a page of unclaimed jobs begins, and the due time of untriggered jobs, if these are requested.
pub fn untaken_from(which: &Untaken) -> (Cursor, Option<Timestamp>) {
    let never = which.untriggered.then(untriggered);
    let first = (never.unwrap_or(Cursor::START.due_at), Cursor::START.id);
    let (due_at, id) = which.after.unwrap_or(first);
    (Cursor { due_at, id }, never)
}
