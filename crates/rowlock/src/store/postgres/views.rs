//! Reads for operators.

pub mod cases;
pub mod verify;
pub mod vitals;

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::Inner;
use crate::{
    error::Result,
    observe::{AttemptView, AuditFilter, AuditView, JobFilter, JobView, Status},
    state::State,
    store::{
        rows::nouns,
        setting::{SettingSort, SettingView},
        views::JobQuery,
    },
};

/// Reads of many rows may take longer than engine statements.
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

pub async fn jobs(inner: &Inner, which: JobQuery<'_>) -> Result<Vec<JobView>> {
    match which {
        JobQuery::One(id) => inner.list("read job", inner.query(&inner.sql.job).bind(id)).await,
        JobQuery::Chain(id) => inner.list("read chain", inner.query(&inner.sql.chain).bind(id)).await,
        JobQuery::Filter(filter) => filtered(inner, filter).await,
    }
}

async fn filtered(inner: &Inner, filter: &JobFilter) -> Result<Vec<JobView>> {
    let text = match (&filter.group, &filter.key, filter.state) {
        (Some(_), ..) => &inner.sql.jobs_of_group,
        (None, None, Some(_)) => &inner.sql.jobs_standing,
        _ => &inner.sql.jobs,
    };
    let max = i64::from(filter.limit);
    // For the planner, an unknown limit is a tenth of all rows, and it would sort these.
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

pub async fn attempts(inner: &Inner, id: i64) -> Result<Vec<AttemptView>> {
    let read = inner.query(&inner.sql.attempts).bind(id);
    inner.list("read attempts", read).await
}

pub async fn audit(inner: &Inner, filter: &AuditFilter) -> Result<Vec<AuditView>> {
    let read = inner
        .query(&inner.sql.audit_read)
        .bind(filter.job)
        .bind(filter.actor.as_deref());
    let read = read.bind(filter.below).bind(i64::from(filter.limit));
    inner.list("read the audit", read).await
}

pub async fn settings(inner: &Inner, of: SettingSort) -> Result<Vec<SettingView>> {
    let (doing, text) = match of {
        SettingSort::Rollouts => ("read rollouts", &inner.sql.rollouts),
        SettingSort::Pauses => ("read pauses", &inner.sql.pauses),
    };
    inner.list(doing, inner.query(text)).await
}
