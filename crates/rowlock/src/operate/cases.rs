//! What operators do about cases: add notes, close them, and reopen those with the same error, a few at a time.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde::Serialize;

use super::Operate;
use crate::{
    case::{CaseErrorView, error_no, error_of},
    error::{Error, Result},
    handle::clean,
    id::{ErrorNo, JobId},
    job::{Limits, check_payload},
    store::{
        Sweep,
        action::{Action, Bulk, Verdict},
        cases::CaseQuery,
    },
};

/// The interval of a ramp.
const STEP: Duration = Duration::from_millis(250);
/// The longest time that a ramp goes without checking whether the error is back.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a ramp waits at its end until the last jobs have been tried.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many reopened jobs may be without an outcome: with more, a ramp waits for the workers.
const WATCHED_MAX: usize = 1000;
/// How many cases are reopened between two looks at the clock.
const AT_ONCE: i64 = 100;
/// How many errors are searched for the requested one.
const ERRORS_MAX: i64 = 100_000;
/// Cases named in one commit.
const NAMED: i32 = 500;

/// The result of reopening the cases of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reopened {
    /// How many were reopened.
    pub reopened: u64,
    /// How many were not.
    pub left: u64,
    /// Why it was stopped before the end: the error was back.
    pub stopped: Option<String>,
}

impl Operate {
    /// Sets the owner and the note of a case, each where given; the audit keeps the old values.
    ///
    /// # Errors
    /// [`Error::Invalid`] when neither is given; [`Error::NotFound`] when there is no such job, [`Error::Conflict`]
    /// when it is not a case. Cancel-safe: it either happened or did not.
    pub async fn note_case(
        &self,
        id: impl Into<JobId>,
        owner: Option<&str>,
        note: Option<&str>,
        actor: &str,
    ) -> Result<()> {
        let JobId(id) = id.into();
        if owner.is_none() && note.is_none() {
            return Err(Error::invalid("note", "nothing to note; give an owner or a note"));
        }
        let [owner, note] = [owner, note].map(|text| text.map(|text| clean(text.to_owned())));
        let (owner, note) = (owner.as_deref(), note.as_deref());
        match self.store.act(Action::NoteCase { id, owner, note }, actor).await? {
            Verdict::Done => Ok(()),
            _ => Err(self.no_case(id, "noted on").await?),
        }
    }

    /// Closes a case for good: the job is finished, as cancelled, and cannot be reopened. A group that it has stopped
    /// goes on.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is not a case. Cancel-safe: it either
    /// happened or did not.
    pub async fn close_case(&self, id: impl Into<JobId>, reason: Option<&str>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let reason = reason.map(|reason| clean(reason.to_owned()));
        let reason = reason.as_deref();
        let verdict = self.store.act(Action::CloseCase { id, reason }, actor).await?;
        self.told(id, verdict, "closed, because it is not a case").await
    }

    /// Reopens a case with another payload. The audit keeps the old payload. The new payload is not checked against the
    /// kind: if its handler cannot read it, the job becomes a case again.
    ///
    /// # Errors
    /// As [`Operate::reopen`], and [`Error::Invalid`] when the payload is not JSON or too large. Cancel safety: dropped
    /// half-way, the payload may be replaced while the case is still open.
    pub async fn reopen_with(&self, id: impl Into<JobId>, payload: &str, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        check_payload(payload, &Limits::new())?;
        serde_json::from_str::<serde_json::Value>(payload)
            .map_err(|e| Error::invalid("payload", format!("not valid JSON: {e}")))?;
        match self.store.act(Action::EditCase { id, payload }, actor).await? {
            Verdict::Done => self.reopen(id, actor).await,
            _ => Err(self.no_case(id, "reopened").await?),
        }
    }

    /// Reopens the open cases of an error, oldest first, at this many per minute. It stops by itself when a reopened
    /// case fails in the same way again, or another job is retired for this error. It runs in the caller: if dropped,
    /// it stops. `tell` is called with the number of reopened cases whenever it grows.
    ///
    /// The audit records each reopened case, and the start and the end of the whole operation.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pace of zero, [`Error::NotFound`] when no open case has this error. Cancel safety:
    /// reopened cases stay reopened.
    pub async fn reopen_error(
        &self,
        error: impl Into<ErrorNo>,
        per_minute: u32,
        actor: &str,
        tell: impl Fn(u64) + Send + Sync,
    ) -> Result<Reopened> {
        if per_minute == 0 {
            return Err(Error::invalid("per_minute", "0 is out of range (1 or more)"));
        }
        let found = self.error(error.into()).await?;
        // Everything that is retired from here on is later than all of these.
        let newest = self.store.cases(CaseQuery::Newest { max: 1 }).await?;
        let until = newest
            .first()
            .map_or(found.last_seen, |case| case.retired_at.max(found.last_seen));
        let total = found.cases.unsigned_abs();
        let pace = format!("{per_minute} a minute");
        self.deed(actor, "reopen error", &found, found.cases, &pace).await?;
        let mut ramp = Ramp {
            operate: self,
            error: found.no.0,
            until,
            actor,
            per_second: f64::from(per_minute) / 60.0,
            watched: Vec::new(),
            reopened: 0,
        };
        let ended = ramp.run(&tell).await;
        let after = match &ended {
            Ok(Some(why)) => format!("stopped: {why}"),
            Ok(None) => "all of them".to_owned(),
            Err(error) => format!("ended by: {error}"),
        };
        let (reopened, jobs) = (ramp.reopened, i64::try_from(ramp.reopened).unwrap_or(i64::MAX));
        let noted = self.deed(actor, "reopened error", &found, jobs, &after).await;
        let stopped = ended?;
        noted?;
        let left = if stopped.is_some() {
            total.saturating_sub(reopened)
        } else {
            0
        };
        Ok(Reopened {
            reopened,
            left,
            stopped,
        })
    }

    /// Finds the error after naming every case, except those that a worker is naming.
    async fn error(&self, no: ErrorNo) -> Result<CaseErrorView> {
        while self.store.sweep(Sweep::Cases, NAMED).await?.moved >= NAMED as usize {}
        let errors = self.store.case_errors(ERRORS_MAX).await?;
        errors
            .into_iter()
            .find(|error| error.no == no)
            .ok_or_else(|| no_such(no))
    }

    async fn deed(&self, actor: &str, verb: &str, error: &CaseErrorView, jobs: i64, after: &str) -> Result<()> {
        let detail = format!("{} {}", error.no, error.error);
        let bulk = Bulk {
            verb,
            detail: &detail,
            jobs,
            after,
        };
        self.store.act(Action::Note(bulk), actor).await.map(drop)
    }

    async fn no_case(&self, id: i64, what: &str) -> Result<Error> {
        let state = self.store.job(id).await?.map(|job| job.state.as_str());
        Ok(match state {
            Some(state) => Error::Conflict(format!("job {id} is {state}, not a case; only cases can be {what}")),
            None => Error::NotFound(format!("no job {id}; `rowlock cases` lists the open cases")),
        })
    }
}

fn no_such(error: ErrorNo) -> Error {
    let problem = format!("no open case has error {error}; `rowlock cases --by-error` lists the known errors");
    Error::NotFound(problem)
}

/// Cases of one error that are being reopened.
struct Ramp<'a> {
    operate: &'a Operate,
    error: i64,
    /// Cases that were retired before this time are reopened; a later failure means that the error is back.
    until: Timestamp,
    actor: &'a str,
    per_second: f64,
    /// Reopened, and without an outcome since.
    watched: Vec<i64>,
    reopened: u64,
}

impl Ramp<'_> {
    /// Why the ramp stopped, or `None`: all cases are reopened and none that was tried failed in that way.
    async fn run(&mut self, tell: &(impl Fn(u64) + Send + Sync)) -> Result<Option<String>> {
        // The first one immediately. Unused credit is kept for a second at most.
        let (mut credit, mut stepped_at) = (1.0, Instant::now());
        let (mut looked_at, mut reopened_at) = (Instant::now(), None::<Instant>);
        loop {
            if reopened_at.is_none() || looked_at.elapsed() >= LOOK_EVERY {
                if let Some(why) = self.is_back().await? {
                    return Ok(Some(why));
                }
                looked_at = Instant::now();
            }
            let open = WATCHED_MAX.saturating_sub(self.watched.len());
            let due = (credit as i64)
                .min(AT_ONCE)
                .min(i64::try_from(open).unwrap_or(i64::MAX));
            if due > 0 {
                let oldest = CaseQuery::Until {
                    error: self.error,
                    until: self.until,
                    max: due,
                };
                let cases = self.operate.store.cases(oldest).await?;
                let ids: Vec<i64> = cases.iter().map(|case| case.id.into()).collect();
                let last = reopened_at.get_or_insert_with(Instant::now);
                if !ids.is_empty() {
                    credit -= ids.len() as f64;
                    *last = Instant::now();
                    self.reopen(ids).await?;
                    tell(self.reopened);
                } else if looked_at > *last && (self.watched.is_empty() || last.elapsed() >= PATIENCE) {
                    // Each one has been tried, or no worker runs that could try it.
                    return Ok(None);
                }
            }
            tokio::time::sleep(STEP).await;
            let passed = stepped_at.elapsed().as_secs_f64();
            stepped_at = Instant::now();
            credit = (credit + passed * self.per_second).min(self.per_second.max(1.0));
        }
    }

    async fn reopen(&mut self, ids: Vec<i64>) -> Result<()> {
        for id in ids {
            // Another caller may have reopened it first.
            let verdict = self.operate.store.act(Action::Reopen { id }, self.actor).await?;
            if verdict == Verdict::Done {
                self.reopened += 1;
                self.watched.push(id);
            }
        }
        Ok(())
    }

    async fn is_back(&mut self) -> Result<Option<String>> {
        let store = &self.operate.store;
        store.sweep(Sweep::Cases, NAMED).await?;
        let since = store.error_since(self.error, &self.watched, self.until).await?;
        if !self.watched.is_empty() {
            let ended = since.ended;
            let same = |text: &Option<String>| {
                text.as_ref()
                    .is_some_and(|text| error_no(&error_of(text)) == self.error)
            };
            if let Some((id, _)) = ended.iter().find(|(_, text)| same(text)) {
                return Ok(Some(format!("job {id} failed again with the same error")));
            }
            let over: HashSet<i64> = ended.into_iter().map(|(id, _)| id).collect();
            self.watched.retain(|id| !over.contains(id));
        }
        Ok(since.retired.map(|id| match id {
            0 => "another job was retired for the same error".to_owned(),
            _ => format!("job {id} was retired for the same error"),
        }))
    }
}
