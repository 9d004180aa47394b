//! What people do about cases: note on them, close them, and reopen those that failed alike, a few at a time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde::Serialize;

use super::Operate;
use crate::{
    case::{CaseErrorView, error_no, error_of},
    error::{Error, Result},
    handle::clean,
    job::{Limits, check_payload},
    store::cases::Deed,
};

/// How often a ramp goes on, at most.
const STEP: Duration = Duration::from_millis(250);
/// The longest that a ramp goes without looking whether the error is back.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Jobs that a ramp keeps an eye on; older ones have failed by now or not.
const WATCHED: usize = 1000;
/// Errors looked through for the one that is asked for.
const ERRORS_MAX: i64 = 100_000;
/// Cases named in one commit.
const NAMED: i32 = 500;

/// What became of reopening the cases of an error.
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
    /// Notes on a case whose it is and what was found out, each where given; what was there before is kept in the audit.
    ///
    /// # Errors
    /// [`Error::Invalid`] when neither is given; [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it
    /// is no case. Cancel-safe: it either happened or did not.
    pub async fn note_case(&self, id: i64, owner: Option<&str>, note: Option<&str>, actor: &str) -> Result<()> {
        if owner.is_none() && note.is_none() {
            return Err(Error::invalid("note", "nothing to note; give an owner or a note"));
        }
        let [owner, note] = [owner, note].map(|text| text.map(|text| clean(text.to_owned())));
        match self
            .store
            .note_case(id, owner.as_deref(), note.as_deref(), actor)
            .await?
        {
            true => Ok(()),
            false => Err(self.no_case(id, "noted on").await?),
        }
    }

    /// Closes a case for good: the job is finished, as cancelled, and cannot be reopened. A group that it has stopped goes
    /// on.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is no case. Cancel-safe: it either
    /// happened or did not.
    pub async fn close_case(&self, id: i64, reason: Option<&str>, actor: &str) -> Result<()> {
        let reason = reason.map(|reason| clean(reason.to_owned()));
        let verdict = self.store.close_case(id, reason.as_deref(), actor).await?;
        self.told(id, verdict, "closed, as it is no case").await
    }

    /// Reopens a case with another payload. The old one is kept in the audit. The payload is not tried against the kind: one
    /// that its handler cannot read makes a case of the job again.
    ///
    /// # Errors
    /// As [`Operate::reopen`], and [`Error::Invalid`] when the payload is no JSON or too large. Cancel safety: dropped
    /// half-way, the payload may be another while the case is still open.
    pub async fn reopen_with(&self, id: i64, payload: &str, actor: &str) -> Result<()> {
        check_payload(payload, &Limits::default())?;
        serde_json::from_str::<serde_json::Value>(payload)
            .map_err(|e| Error::invalid("payload", format!("not json: {e}")))?;
        match self.store.edit_case(id, payload, actor).await? {
            true => self.reopen(id, actor).await,
            false => Err(self.no_case(id, "reopened").await?),
        }
    }

    /// Reopens the open cases of an error, oldest first, so many a minute, and stops by itself when one that was reopened
    /// fails in the same way again, or another job is retired for it. It runs here: dropped, it goes no further. `tell` hears
    /// how many were reopened, whenever there are more.
    ///
    /// Each case is noted in the audit as reopened, and so are the beginning and the end of the whole.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pace of none, [`Error::NotFound`] when no open case has this error. Cancel safety: those that
    /// were reopened stay so.
    pub async fn reopen_error(
        &self,
        error: i64,
        per_minute: u32,
        actor: &str,
        tell: impl Fn(u64) + Send + Sync,
    ) -> Result<Reopened> {
        if per_minute == 0 {
            return Err(Error::invalid(
                "per_minute",
                "0 a minute reopens nothing; give 1 or more",
            ));
        }
        let found = self.error(error).await?;
        let total = found.cases.unsigned_abs();
        self.deed(
            actor,
            "reopen error",
            &found,
            found.cases,
            &format!("{per_minute} a minute"),
        )
        .await?;
        let ramp = Ramp {
            operate: self,
            error: &found,
            actor,
            began: Instant::now(),
            per_minute,
            watched: VecDeque::new(),
            reopened: 0,
        };
        let reopened = ramp.run(total, tell).await?;
        let after = match &reopened.stopped {
            Some(why) => format!("stopped: {why}"),
            None => "all of them".to_owned(),
        };
        let jobs = i64::try_from(reopened.reopened).unwrap_or(i64::MAX);
        self.deed(actor, "reopened error", &found, jobs, &after).await?;
        Ok(reopened)
    }

    /// With every case named that there is.
    async fn error(&self, no: i64) -> Result<CaseErrorView> {
        while self.store.name_cases(NAMED).await? > 0 {}
        let errors = self.store.case_errors(ERRORS_MAX).await?;
        errors.into_iter().find(|error| error.no == no).ok_or_else(|| {
            let problem = format!("no open case has error {no:012x}; `rowlock cases --by-error` lists those there are");
            Error::NotFound(problem)
        })
    }

    async fn deed(&self, actor: &str, verb: &str, error: &CaseErrorView, jobs: i64, after: &str) -> Result<()> {
        let detail = format!("{:012x} {}", error.no, error.error);
        let deed = Deed {
            actor,
            verb,
            detail: &detail,
            jobs,
            after,
        };
        self.store.note_deed(deed).await
    }

    async fn no_case(&self, id: i64, what: &str) -> Result<Error> {
        let state = self.store.job(id).await?.map(|job| job.state.as_str());
        Ok(match state {
            Some(state) => Error::Conflict(format!("job {id} is {state}, not a case; only cases can be {what}")),
            None => Error::NotFound(format!("no job {id}; `rowlock cases` lists the open cases")),
        })
    }
}

/// Cases of one error on their way back.
struct Ramp<'a> {
    operate: &'a Operate,
    error: &'a CaseErrorView,
    actor: &'a str,
    began: Instant,
    per_minute: u32,
    /// The newest of those that were reopened.
    watched: VecDeque<i64>,
    reopened: u64,
}

impl Ramp<'_> {
    async fn run(mut self, total: u64, tell: impl Fn(u64)) -> Result<Reopened> {
        let mut looked_at = Instant::now();
        loop {
            if looked_at.elapsed() >= LOOK_EVERY || self.reopened == 0 {
                if let Some(why) = self.is_back().await? {
                    return Ok(self.ended(total, Some(why)));
                }
                looked_at = Instant::now();
            }
            let due = self.due();
            if due > 0 {
                let ids = self.cases(due).await?;
                if ids.is_empty() {
                    return Ok(self.ended(total, None));
                }
                for id in ids {
                    // Somebody else may have been quicker.
                    if self.operate.store.reopen(id, self.actor).await? {
                        self.reopened += 1;
                        self.watched.push_back(id);
                    }
                }
                while self.watched.len() > WATCHED {
                    self.watched.pop_front();
                }
                tell(self.reopened);
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// How many more may be open by now; the first at once.
    fn due(&self) -> i64 {
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        let by_now = 1 + (minutes * f64::from(self.per_minute)) as u64;
        i64::try_from(by_now.saturating_sub(self.reopened)).unwrap_or(i64::MAX)
    }

    async fn cases(&self, max: i64) -> Result<Vec<i64>> {
        self.operate
            .store
            .cases_of(self.error.no, self.until(), max.min(1000))
            .await
    }

    /// Those that were retired after that have come since.
    fn until(&self) -> Timestamp {
        self.error.last_seen
    }

    async fn is_back(&self) -> Result<Option<String>> {
        let store = &self.operate.store;
        let watched: Vec<i64> = self.watched.iter().copied().collect();
        if !watched.is_empty() {
            let failed = store.errors_since(&watched, self.until()).await?;
            let same = |text: &str| error_no(&error_of(text)) == self.error.no;
            if let Some((id, _)) = failed.iter().find(|(_, text)| same(text)) {
                return Ok(Some(format!("job {id} failed in the same way again")));
            }
        }
        store.name_cases(NAMED).await?;
        let again = store.case_again(self.error.no, self.until()).await?;
        Ok(again.map(|id| format!("job {id} was retired for the same error")))
    }

    fn ended(&self, total: u64, stopped: Option<String>) -> Reopened {
        Reopened {
            reopened: self.reopened,
            left: match stopped {
                Some(_) => total.saturating_sub(self.reopened),
                None => 0,
            },
            stopped,
        }
    }
}
