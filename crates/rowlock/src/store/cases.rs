//! Cases: which to list, and what they have in common.

use jiff::Timestamp;

use super::rows::{Columns, Noun};
use crate::case::CaseErrorView;

/// Which open cases to list.
#[derive(Clone, Copy, Debug)]
pub enum CaseQuery {
    One(i64),
    /// The newest cases.
    Newest {
        max: i64,
    },
    /// The newest cases of an error.
    Alike {
        error: i64,
        max: i64,
    },
    /// The cases of an error that were retired until then, oldest first.
    Until {
        error: i64,
        until: Timestamp,
        max: i64,
    },
}

/// What happened to an error after a time.
#[derive(Clone, Debug, Default)]
pub struct ErrorSince {
    /// How attempts of the requested jobs ended: the job, and its error, if any.
    pub ended: Vec<(i64, Option<String>)>,
    /// The newest case of the error that was retired since; 0 if this case is not open any more.
    pub retired: Option<i64>,
}

impl Noun for CaseErrorView {
    fn of(row: &impl Columns) -> sqlx::Result<CaseErrorView> {
        Ok(CaseErrorView {
            no: row.read("no")?,
            error: row.read("error")?,
            cases: row.read("cases")?,
            newest: row.read("newest")?,
            first_seen: row.read("first_seen")?,
            last_seen: row.read("last_seen")?,
            seen: row.read("seen")?,
        })
    }
}
