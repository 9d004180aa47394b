//! Operator commands, each in one commit with its audit entry, and how the audit is read.

use jiff::Timestamp;

use super::rows::{Columns, Noun};
use crate::{breaker::Force, effect::Resolution, observe::AuditView, pause::Target};

/// The code of a refusal because there is no such job.
pub const NO_JOB: &str = "RL010";
/// The code of a refusal because the job is in another place.
pub const ELSEWHERE: &str = "RL011";

/// One operator command.
#[derive(Clone, Debug)]
pub enum Action<'a> {
    /// Makes a job due at this time, or now.
    Delay { id: i64, until: Option<Timestamp> },
    /// Ends a job that is not finished, even if a worker holds it.
    Cancel { id: i64, reason: Option<&'a str> },
    /// Makes a case of a job that is not finished, even if a worker holds it.
    Retire { id: i64, reason: Option<&'a str> },
    /// Gives a finished job a place again, under a new epoch, unless the job has expired or its history is gone.
    Rerun { id: i64, reason: Option<&'a str> },
    /// Puts a case back to ready, or to waiting while the name that it waits for is not completed.
    Reopen { id: i64 },
    /// Closes a case for good.
    CloseCase { id: i64, reason: Option<&'a str> },
    /// Changes the notes of a case, where given.
    NoteCase {
        id: i64,
        owner: Option<&'a str>,
        note: Option<&'a str>,
    },
    /// Gives the job of a case another payload.
    EditCase { id: i64, payload: &'a str },
    /// Records what an operator found out about an effect in doubt.
    ResolveEffect { no: i64, resolution: &'a Resolution },
    /// Sets a rollout to this percentage.
    SetRollout { name: &'a str, percent: u8 },
    /// Pauses a target, or resumes it.
    SetPause { target: &'a Target, paused: bool },
    /// Forces a breaker into a state.
    ForceBreaker { name: &'a str, force: Force },
    /// What an operator did to several jobs together. It is only written to the audit; nothing else happens.
    Note(Bulk<'a>),
}

/// What an operator did to several jobs together.
#[derive(Clone, Copy, Debug)]
pub struct Bulk<'a> {
    pub verb: &'a str,
    pub detail: &'a str,
    pub jobs: i64,
    pub after: &'a str,
}

/// The result of an operator command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    Done,
    /// The command changed nothing, because everything was already as asked.
    Unchanged,
    /// There is no such job, effect or breaker.
    Missing,
    /// The place of the job does not allow the command.
    Elsewhere,
}

impl Verdict {
    /// For a command that changes something, or finds it already changed.
    pub fn changed(changed: bool) -> Verdict {
        if changed { Verdict::Done } else { Verdict::Unchanged }
    }

    /// For a command that finds its case or effect, or does not.
    pub fn found(found: bool) -> Verdict {
        if found { Verdict::Done } else { Verdict::Elsewhere }
    }
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
            job: Some(row.read("id")?).filter(|id: &i64| *id != 0).map(Into::into),
            detail: row.read("detail")?,
            jobs: row.read("jobs")?,
            before: noted("before")?,
            after: noted("after")?,
            verb,
        })
    }
}

/// The time that an audit entry contains: PostgreSQL writes a timestamp, SQLite microseconds since the epoch.
fn noted_time(text: &str) -> Option<Timestamp> {
    match text.parse() {
        Ok(us) => Timestamp::from_microsecond(us).ok(),
        Err(_) => text.parse().ok(),
    }
}
