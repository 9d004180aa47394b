//! Complete a name that jobs wait for, inside the caller's transaction: an approval, a webhook, an incoming payment.
//!
//! A name is completed once, for ever; the first answer stays. Jobs that wait for the name move to ready in the same
//! commit. Jobs that are enqueued later and wait for the name are ready immediately.

use serde::Serialize;

use crate::{
    error::{Error, Result},
    job::{Limits, check_payload},
    key::check_key,
    root::{Backend, InTransaction, Rowlock},
    store::Store as _,
};

/// What a completion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Completed {
    /// The name is completed with this answer once the transaction commits; this many waiting jobs move to ready with
    /// it. Jobs in transactions that are still open are not counted; they follow within about a second.
    Now(u64),
    /// The name was completed before. The first answer stays, and nothing was moved.
    Already,
}

impl Completed {
    pub(crate) fn of(moved: Option<i64>) -> Completed {
        match moved {
            Some(jobs) => Completed::Now(u64::try_from(jobs).unwrap_or_default()),
            None => Completed::Already,
        }
    }
}

/// Checks the name and the answer before any SQL.
pub(crate) fn check(name: &str, answer: &str, limits: &Limits) -> Result<()> {
    check_key("name", name)?;
    check_payload(answer, limits).map_err(|error| match error {
        Error::Invalid { problem, .. } => Error::invalid("answer", problem),
        other => other,
    })
}

impl<DB: Backend> Rowlock<DB> {
    /// Completes a name in the caller's transaction: `rowlock.complete(&mut tx, "approval:42", &answer).await?`. The
    /// answer holds if and only if that transaction commits.
    ///
    /// If a concurrent caller completes the same name in an open transaction, this call waits for that transaction.
    ///
    /// ```no_run
    /// # async fn approve(rowlock: &rowlock::sqlite::Rowlock, mut tx: sqlx::SqliteTransaction<'_>) -> rowlock::Result<()> {
    /// use rowlock::Completed;
    /// match rowlock.complete(&mut tx, "approval:42", &"granted by Ada").await? {
    ///     Completed::Now(jobs) => println!("{jobs} jobs may run"),
    ///     Completed::Already => println!("somebody was quicker; the first answer stays"),
    ///     _ => {}
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] before any SQL, so the transaction stays good; [`Error::TryAgain`] when another transaction
    /// was in the way; [`Error::Database`] otherwise.
    ///
    /// Cancel safety: dropped half-way, the caller's connection is in the middle of a statement; roll back and drop it.
    pub async fn complete<T: Serialize + ?Sized + Sync>(
        &self,
        tx: &mut impl InTransaction<DB>,
        name: &str,
        answer: &T,
    ) -> Result<Completed> {
        let answer = self.answer(name, answer)?;
        let moved = DB::complete_in(self.store(), tx.connection(), name, Some(&answer)).await?;
        Ok(Completed::of(moved))
    }

    /// Completes a name and commits, on one of Rowlock's connections.
    ///
    /// # Errors
    /// As [`Rowlock::complete`]. After a database error it may or may not have happened; a repeat then says
    /// [`Completed::Already`]. Cancel-safe in the same way.
    pub async fn complete_now<T: Serialize + ?Sized + Sync>(&self, name: &str, answer: &T) -> Result<Completed> {
        let answer = self.answer(name, answer)?;
        Ok(Completed::of(self.store().complete(name, Some(&answer)).await?))
    }

    fn answer<T: Serialize + ?Sized>(&self, name: &str, answer: &T) -> Result<String> {
        let answer = serde_json::to_string(answer)
            .map_err(|e| Error::invalid("answer", format!("cannot be written as JSON: {e}")))?;
        check(name, &answer, self.limits())?;
        Ok(answer)
    }
}
