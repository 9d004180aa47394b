//! What people do to single jobs, by the functions that plain SQL has too.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{
    Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{Inner, PgStore};
use crate::{
    error::{Doing, Error, Result, sqlstate},
    job::queue_no,
    observe::{AuditFilter, AuditView},
    store::{
        Fut,
        verbs::{ELSEWHERE, NO_JOB, Verbs, Verdict},
    },
};

impl PgStore {
    async fn verb(&self, verb: Query<'_, Postgres, PgArguments>, doing: &'static str) -> Result<Verdict> {
        let mut lent = self.0.engine.acquire().await.doing(doing)?;
        let verdict = match verb.execute(lent.pg()).await {
            Ok(_) => Verdict::Done,
            Err(error) => match sqlstate(&error).as_deref() {
                Some(NO_JOB) => Verdict::NoJob,
                Some(ELSEWHERE) => Verdict::Elsewhere,
                _ => return Err(error).doing(doing).map_err(Error::answered),
            },
        };
        // After a refusal the transaction, behind a pooler, is spoilt: the connection is not used again.
        if verdict == Verdict::Done {
            lent.end(doing).await?;
        }
        Ok(verdict)
    }
}

impl Verbs for PgStore {
    fn delay<'a>(&'a self, id: i64, until: Option<Timestamp>, actor: &'a str) -> Fut<'a, Verdict> {
        let delay = sqlx::query(self.0.sql.delay.clone())
            .bind(id)
            .bind(until.map(ToSqlx::to_sqlx))
            .bind(actor);
        self.bounded("delay", self.verb(delay, "delay"))
    }

    fn cancel<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let cancel = sqlx::query(self.0.sql.cancel.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("cancel", self.verb(cancel, "cancel"))
    }

    fn retire<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let retire = sqlx::query(self.0.sql.retire.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("retire", self.verb(retire, "retire"))
    }

    fn rerun<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let rerun = sqlx::query(self.0.sql.rerun.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("re-run", self.verb(rerun, "re-run"))
    }

    fn note_names<'a>(&'a self, _names: &'a [(i64, String)]) -> Fut<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>> {
        self.bounded("read the audit", async move {
            let mut lent = self.0.engine.acquire().await.doing("read the audit")?;
            let read = sqlx::query(self.0.sql.audit_read.clone())
                .bind(filter.job)
                .bind(filter.actor.as_deref())
                .bind(filter.below)
                .bind(i64::from(filter.limit));
            let found = read.fetch_all(lent.pg()).await.doing("read the audit")?;
            lent.end("read the audit").await?;
            let all: sqlx::Result<_> = found.iter().map(audited).collect();
            all.doing("read the audit")
        })
    }

    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let close = sqlx::query(self.0.sql.case_close.clone())
            .bind(id)
            .bind(reason)
            .bind(actor);
        self.bounded("close a case", self.verb(close, "close a case"))
    }
}

fn audited(row: &PgRow) -> sqlx::Result<AuditView> {
    let verb: String = row.try_get("verb")?;
    let stood = |column| -> sqlx::Result<Option<String>> {
        let text: Option<String> = row.try_get(column)?;
        Ok(match text.as_deref().map(str::parse::<Timestamp>) {
            Some(Ok(due)) if AuditView::has_times(&verb) => Some(due.to_string()),
            _ => text,
        })
    };
    Ok(AuditView {
        no: row.try_get("no")?,
        at: row.try_get::<jiff_sqlx::Timestamp, _>("at")?.to_jiff(),
        actor: row.try_get("actor")?,
        job: Some(row.try_get("id")?).filter(|id| *id != 0),
        detail: row.try_get("detail")?,
        jobs: row.try_get("jobs")?,
        before: stood("before")?,
        after: stood("after")?,
        verb,
    })
}

/// The queue to wake, or `None` when the job is no case.
pub async fn reopen(inner: &Inner, id: i64, actor: &str) -> Result<Option<i64>> {
    let reopen = inner.query_scalar(&inner.sql.reopen).bind(id).bind(actor);
    let queue: Result<Option<String>> = inner.run("reopen", async |pg| Ok(reopen.fetch_one(pg).await?)).await;
    match queue {
        Ok(queue) => Ok(Some(queue_no(&queue.unwrap_or_default()))),
        Err(error) if matches!(error.code().as_deref(), Some(NO_JOB | ELSEWHERE)) => Ok(None),
        Err(error) => Err(error),
    }
}
