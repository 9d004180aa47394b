//! What people do to single jobs, by the triggers that plain SQL has too.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::{SqliteStore, sql, views};
use crate::{
    job::{kind_no, queue_no},
    store::{
        Fut,
        verbs::{ELSEWHERE, NO_JOB, Verbs, Verdict},
    },
};

impl Verbs for SqliteStore {
    fn delay<'a>(&'a self, id: i64, until: Option<Timestamp>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, until.map(Timestamp::as_microsecond), actor.to_owned());
        Box::pin(self.write("delay", input, |db, now, (id, until, actor)| {
            let delay = sqlx::query(sql::DELAY).bind(id).bind(until).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, delay).await })
        }))
    }

    fn cancel<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("cancel", input, |db, now, (id, reason, actor)| {
            let cancel = sqlx::query(sql::CANCEL).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, cancel).await })
        }))
    }

    fn retire<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("retire", input, |db, now, (id, reason, actor)| {
            let retire = sqlx::query(sql::RETIRE).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, retire).await })
        }))
    }

    fn rerun<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("re-run", input, |db, now, (id, reason, actor)| {
            Box::pin(rerun(db, now, *id, reason.as_deref(), actor))
        }))
    }

    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("close a case", input, |db, now, (id, reason, actor)| {
            let close = sqlx::query(sql::CASE_CLOSE).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, close).await })
        }))
    }
}

/// By way of a case that nobody ever sees: reopening knows every place that a job may have to wait in.
async fn rerun(
    db: &mut SqliteConnection,
    now: i64,
    id: i64,
    reason: Option<&str>,
    actor: &str,
) -> sqlx::Result<Verdict> {
    let Some(job) = views::job(db, id).await? else {
        return Ok(Verdict::NoJob);
    };
    let filed = sqlx::query_scalar(sql::RERUN)
        .bind(id)
        .bind(queue_no(&job.queue))
        .bind(kind_no(&job.kind, job.version))
        .bind(now);
    let Some(ended): Option<String> = filed.fetch_optional(&mut *db).await? else {
        return Ok(Verdict::Elsewhere);
    };
    let body = sqlx::query(sql::RERUN_BODY).bind(id).bind(now);
    body.execute(&mut *db).await?;
    views::reopened(db, now, id).await?;
    let note = sqlx::query(sql::RERUN_AUDIT).bind(now).bind(actor).bind(id);
    note.bind(reason).bind(ended).execute(db).await?;
    Ok(Verdict::Done)
}

/// A refusal takes back what its own statement did, and nothing else of the transaction.
async fn verdict(
    db: &mut SqliteConnection,
    verb: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
) -> sqlx::Result<Verdict> {
    let Err(error) = verb.execute(db).await else {
        return Ok(Verdict::Done);
    };
    let said = error
        .as_database_error()
        .map(|e| e.message().to_owned())
        .unwrap_or_default();
    match said.split(':').next() {
        Some(NO_JOB) => Ok(Verdict::NoJob),
        Some(ELSEWHERE) => Ok(Verdict::Elsewhere),
        _ => Err(error),
    }
}
