//! The storage contract for cases beyond their list: what they have in common, and what people find out about them.

use jiff::Timestamp;

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::case::CaseErrorView;

/// What somebody did to several jobs at once.
#[derive(Clone, Copy, Debug)]
pub struct Deed<'a> {
    pub actor: &'a str,
    pub verb: &'a str,
    pub detail: &'a str,
    pub jobs: i64,
    pub after: &'a str,
}

/// The engine's and the operator's verbs for cases, on connections of the store's own.
pub trait Cases: Send + Sync {
    /// Names the errors of up to so many cases that have none; how many there were.
    fn name_cases(&self, max: i32) -> Fut<'_, usize>;
    /// The errors that open cases have, most cases first.
    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>>;
    /// Open cases of an error that were retired until then, oldest first.
    fn cases_of(&self, error: i64, until: Timestamp, max: i64) -> Fut<'_, Vec<i64>>;
    /// The newest case of an error that was retired after that time; 0 if it is not open any more.
    fn case_again(&self, error: i64, after: Timestamp) -> Fut<'_, Option<i64>>;
    /// When the newest open case was retired.
    fn newest_case(&self) -> Fut<'_, Option<Timestamp>>;
    /// How attempts of these jobs ended after that time: the job, and what went wrong, if anything did.
    fn outcomes_since<'a>(&'a self, jobs: &'a [i64], after: Timestamp) -> Fut<'a, Vec<(i64, Option<String>)>>;
    /// Notes on a case, where given; `false` when it is none.
    fn note_case<'a>(&'a self, id: i64, owner: Option<&'a str>, note: Option<&'a str>, actor: &'a str)
    -> Fut<'a, bool>;
    /// Gives the job of a case another payload; `false` when it is none.
    fn edit_case<'a>(&'a self, id: i64, payload: &'a str, actor: &'a str) -> Fut<'a, bool>;
    /// Notes a deed in the audit.
    fn note_deed<'a>(&'a self, deed: Deed<'a>) -> Fut<'a, ()>;
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
