//! What people do to single jobs, by the triggers that plain SQL has too.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::{SqliteStore, rows, sql, views};
use crate::{
    error::Doing,
    job::{kind_no, queue_no},
    observe::{AuditFilter, AuditView},
    store::{
        Fut,
        rows::nouns,
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

    fn note_names<'a>(&'a self, names: &'a [(i64, String)]) -> Fut<'a, ()> {
        let names = rows::array(names);
        Box::pin(async move {
            let names = names.doing("store names")?;
            self.write("store names", names, |db, _, names| {
                Box::pin(async move { sqlx::query(sql::NAMES).bind(names).execute(db).await.map(drop) })
            })
            .await
        })
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>> {
        let read = sqlx::query(sql::AUDIT_READ).bind(filter.job).bind(&filter.actor);
        let read = read.bind(filter.below).bind(i64::from(filter.limit));
        Box::pin(self.read("read the audit", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("close a case", input, |db, now, (id, reason, actor)| {
            let close = sqlx::query(sql::CASE_CLOSE).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, close).await })
        }))
    }
}

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
    let rerun = sqlx::query(sql::RERUN).bind(id).bind(reason).bind(actor).bind(now);
    let numbers = (queue_no(&job.queue), kind_no(&job.kind, job.version));
    verdict(db, rerun.bind(numbers.0).bind(numbers.1)).await
}

/// The queue to wake, or `None` when the job is no case.
pub async fn reopen(db: &mut SqliteConnection, now: i64, id: i64, actor: &str) -> sqlx::Result<Option<i64>> {
    let reopen = sqlx::query(sql::REOPEN).bind(id).bind(actor).bind(now);
    match verdict(db, reopen).await? {
        Verdict::Done => {
            let job = views::job(db, id).await?;
            Ok(Some(queue_no(&job.map(|job| job.queue).unwrap_or_default())))
        }
        Verdict::NoJob | Verdict::Elsewhere => Ok(None),
    }
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
