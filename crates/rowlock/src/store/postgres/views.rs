//! Reads for people, and the one verb of theirs that writes.

use sqlx::{AssertSqlSafe, postgres::PgRow};

use super::{Inner, rows};
use crate::{
    case::CaseView,
    error::{Doing, Result, sqlstate},
    job::queue_no,
    observe::{AttemptView, JobFilter, JobView, Status},
    state::State,
    store::verbs::{ELSEWHERE, NO_JOB},
};

fn each<T>(found: &[PgRow], f: impl Fn(&PgRow) -> sqlx::Result<T>, doing: &'static str) -> Result<Vec<T>> {
    found.iter().map(f).collect::<sqlx::Result<_>>().doing(doing)
}

pub async fn status(inner: &Inner) -> Result<Status> {
    let mut lent = inner.engine.acquire().await.doing("status")?;
    let lanes = sqlx::query(inner.sql.status.clone())
        .bind(inner.now())
        .fetch_all(lent.pg())
        .await
        .doing("status")?;
    let workers = sqlx::query(inner.sql.workers.clone())
        .bind(inner.now())
        .fetch_all(lent.pg())
        .await
        .doing("status")?;
    lent.end("status").await?;
    Ok(Status {
        lanes: each(&lanes, rows::lane, "status")?,
        workers: each(&workers, rows::worker, "status")?,
    })
}

pub async fn jobs(inner: &Inner, filter: &JobFilter) -> Result<Vec<JobView>> {
    let mut lent = inner.engine.acquire().await.doing("list jobs")?;
    let text = match (&filter.group, &filter.key, filter.state) {
        (Some(_), ..) => &inner.sql.jobs_of_group,
        (None, None, Some(_)) => &inner.sql.jobs_standing,
        _ => &inner.sql.jobs,
    };
    let max = i64::from(filter.limit);
    // A limit that the planner does not know is a tenth of everything to it, and it would sort that.
    let text = AssertSqlSafe(text.as_str().replace("$6", &max.to_string()));
    let mut list = sqlx::query(text)
        .persistent(false)
        .bind(&filter.queue)
        .bind(&filter.kind)
        .bind(filter.state.map(State::as_str))
        .bind(&filter.tag)
        .bind(filter.below)
        .bind(max);
    if filter.group.is_some() || filter.key.is_some() || filter.state.is_none() {
        list = list.bind(&filter.key);
    }
    if let Some(group) = &filter.group {
        list = list.bind(group);
    }
    let found = list.fetch_all(lent.pg()).await.doing("list jobs")?;
    lent.end("list jobs").await?;
    each(&found, rows::job, "list jobs")
}

pub async fn job(inner: &Inner, id: i64) -> Result<Option<JobView>> {
    let mut lent = inner.engine.acquire().await.doing("read job")?;
    let found = sqlx::query(inner.sql.job.clone())
        .bind(id)
        .fetch_all(lent.pg())
        .await
        .doing("read job")?;
    lent.end("read job").await?;
    Ok(each(&found, rows::job, "read job")?.pop())
}

pub async fn chain(inner: &Inner, id: i64) -> Result<Vec<JobView>> {
    let mut lent = inner.engine.acquire().await.doing("read chain")?;
    let found = sqlx::query(inner.sql.chain.clone())
        .bind(id)
        .fetch_all(lent.pg())
        .await
        .doing("read chain")?;
    lent.end("read chain").await?;
    each(&found, rows::job, "read chain")
}

pub async fn attempts(inner: &Inner, id: i64) -> Result<Vec<AttemptView>> {
    let mut lent = inner.engine.acquire().await.doing("read attempts")?;
    let found = sqlx::query(inner.sql.attempts.clone())
        .bind(id)
        .fetch_all(lent.pg())
        .await
        .doing("read attempts")?;
    lent.end("read attempts").await?;
    each(&found, rows::attempt, "read attempts")
}

pub async fn cases(inner: &Inner, id: Option<i64>, error: Option<i64>, max: i64) -> Result<Vec<CaseView>> {
    let mut lent = inner.engine.acquire().await.doing("list cases")?;
    let query = match error {
        Some(error) => sqlx::query(inner.sql.cases_alike.clone()).bind(error),
        None => sqlx::query(inner.sql.cases.clone()).bind(id),
    };
    let found = query.bind(max).fetch_all(lent.pg()).await.doing("list cases")?;
    lent.end("list cases").await?;
    each(&found, rows::case, "list cases")
}

/// The queue to wake, or `None` when the job is no case.
pub async fn reopen(inner: &Inner, id: i64, actor: &str) -> Result<Option<i64>> {
    let mut lent = inner.engine.acquire().await.doing("reopen")?;
    let reopen = sqlx::query_scalar(inner.sql.reopen.clone()).bind(id).bind(actor);
    let queue: Option<String> = match reopen.fetch_one(lent.pg()).await {
        Ok(queue) => queue,
        // The transaction, behind a pooler, is spoilt: the connection is not used again.
        Err(error) if matches!(sqlstate(&error).as_deref(), Some(NO_JOB | ELSEWHERE)) => return Ok(None),
        Err(error) => return Err(error).doing("reopen"),
    };
    lent.end("reopen").await?;
    Ok(Some(queue_no(&queue.unwrap_or_default())))
}
