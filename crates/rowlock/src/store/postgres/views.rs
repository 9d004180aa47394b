//! Reads for people.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::Inner;
use crate::{
    case::CaseView,
    error::Result,
    observe::{AttemptView, JobFilter, JobView, Status},
    state::State,
    store::rows::nouns,
};

/// What looks at many rows may take longer than a verb of the engine.
const LIMIT: Duration = Duration::from_secs(60);

pub async fn status(inner: &Inner) -> Result<Status> {
    let lanes = inner.query(&inner.sql.status).bind(inner.now());
    let workers = inner.query(&inner.sql.workers).bind(inner.now());
    inner
        .run_within(LIMIT, "status", async |pg| {
            Ok(Status {
                lanes: nouns(&lanes.fetch_all(&mut *pg).await?)?,
                workers: nouns(&workers.fetch_all(pg).await?)?,
            })
        })
        .await
}

pub async fn jobs(inner: &Inner, filter: &JobFilter) -> Result<Vec<JobView>> {
    let text = match (&filter.group, &filter.key, filter.state) {
        (Some(_), ..) => &inner.sql.jobs_of_group,
        (None, None, Some(_)) => &inner.sql.jobs_standing,
        _ => &inner.sql.jobs,
    };
    let max = i64::from(filter.limit);
    // A limit that the planner does not know is a tenth of everything to it, and it would sort that.
    let text = AssertSqlSafe(text.as_str().replace("$6", &max.to_string()));
    let mut read = sqlx::query(text)
        .persistent(false)
        .bind(&filter.queue)
        .bind(&filter.kind)
        .bind(filter.state.map(State::as_str))
        .bind(&filter.tag)
        .bind(filter.below)
        .bind(max);
    if filter.group.is_some() || filter.key.is_some() || filter.state.is_none() {
        read = read.bind(&filter.key);
    }
    if let Some(group) = &filter.group {
        read = read.bind(group);
    }
    inner
        .run_within(LIMIT, "list jobs", async |pg| Ok(nouns(&read.fetch_all(pg).await?)?))
        .await
}

pub async fn job(inner: &Inner, id: i64) -> Result<Option<JobView>> {
    let read = inner.query(&inner.sql.job).bind(id);
    inner
        .run("read job", async |pg| Ok(nouns(&read.fetch_all(pg).await?)?.pop()))
        .await
}

pub async fn chain(inner: &Inner, id: i64) -> Result<Vec<JobView>> {
    let read = inner.query(&inner.sql.chain).bind(id);
    inner.list("read chain", read).await
}

pub async fn attempts(inner: &Inner, id: i64) -> Result<Vec<AttemptView>> {
    let read = inner.query(&inner.sql.attempts).bind(id);
    inner.list("read attempts", read).await
}

pub async fn cases(inner: &Inner, id: Option<i64>, error: Option<i64>, max: i64) -> Result<Vec<CaseView>> {
    let read = match error {
        Some(error) => inner.query(&inner.sql.cases_alike).bind(error),
        None => inner.query(&inner.sql.cases).bind(id),
    };
    let read = read.bind(max);
    inner.list("list cases", read).await
}
