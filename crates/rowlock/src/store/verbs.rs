//! The storage contract for what people do to single jobs, and did. Each is one commit with its note in the audit.

use jiff::Timestamp;

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::observe::{AuditFilter, AuditView};

/// The code of a refusal because there is no such job.
pub const NO_JOB: &str = "RL010";
/// The code of a refusal because the job stands elsewhere.
pub const ELSEWHERE: &str = "RL011";

/// What became of a verb.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// There is no such job.
    NoJob,
    /// It stands where the verb has no business.
    Elsewhere,
}

/// The operator's verbs on connections of the store's own.
pub trait Verbs: Send + Sync {
    /// Makes a job due at this time, or now; wakes are sent after it.
    fn delay<'a>(&'a self, id: i64, until: Option<Timestamp>, actor: &'a str) -> Fut<'a, Verdict>;
    /// Ends a job that is not finished, whoever has it.
    fn cancel<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict>;
    /// Makes a case of a job that is not finished, whoever has it.
    fn retire<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict>;
    /// Gives a finished job a place again, under a new epoch, unless its expiry is past or its history gone.
    fn rerun<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict>;
    /// Notes the numbers of the names that a worker serves, where the database cannot work them out: verbs of plain SQL use
    /// them.
    fn note_names<'a>(&'a self, names: &'a [(i64, String)]) -> Fut<'a, ()>;
    /// What people did, newest first.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>>;
    /// Closes a case for good.
    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict>;
}

impl Noun for AuditView {
    fn of(row: &impl Columns) -> sqlx::Result<AuditView> {
        let verb: String = row.read("verb")?;
        let noted = |column| -> sqlx::Result<Option<String>> {
            let text: Option<String> = row.read(column)?;
            let due = text
                .as_deref()
                .filter(|_| AuditView::has_times(&verb))
                .and_then(noted_time);
            Ok(due.map(|due| due.to_string()).or(text))
        };
        Ok(AuditView {
            no: row.read("no")?,
            at: row.read("at")?,
            actor: row.read("actor")?,
            job: Some(row.read("id")?).filter(|id| *id != 0),
            detail: row.read("detail")?,
            jobs: row.read("jobs")?,
            before: noted("before")?,
            after: noted("after")?,
            verb,
        })
    }
}

/// The time that a note says: PostgreSQL writes a timestamp, SQLite microseconds since the epoch.
fn noted_time(text: &str) -> Option<Timestamp> {
    match text.parse() {
        Ok(us) => Timestamp::from_microsecond(us).ok(),
        Err(_) => text.parse().ok(),
    }
}
