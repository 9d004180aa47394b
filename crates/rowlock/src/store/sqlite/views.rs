//! Reads for people.

use sqlx::SqliteConnection;

use super::{
    rows::{self, StretchRow},
    sql,
};
use crate::{
    case::CaseView,
    observe::{AttemptView, JobFilter, JobView, Status},
    state::State,
    store::{
        Stretch,
        rows::{Noun, nouns},
    },
};

pub async fn status(db: &mut SqliteConnection, now: i64) -> sqlx::Result<Status> {
    let lanes = sqlx::query(sql::STATUS).bind(now).fetch_all(&mut *db).await?;
    let workers = sqlx::query(sql::WORKERS).bind(now).fetch_all(&mut *db).await?;
    Ok(Status {
        lanes: nouns(&lanes)?,
        workers: nouns(&workers)?,
    })
}

pub async fn jobs(db: &mut SqliteConnection, filter: &JobFilter) -> sqlx::Result<Vec<JobView>> {
    let text = match (&filter.group, &filter.key, filter.state) {
        (Some(_), ..) => sql::JOBS_OF_GROUP,
        (None, None, Some(_)) => sql::JOBS_STANDING,
        _ => sql::JOBS,
    };
    let found = sqlx::query(text)
        .bind(&filter.queue)
        .bind(&filter.kind)
        .bind(filter.state.map(State::as_str))
        .bind(&filter.tag)
        .bind(filter.below)
        .bind(i64::from(filter.limit))
        .bind(&filter.key)
        .bind(&filter.group)
        .fetch_all(db)
        .await?;
    nouns(&found)
}

pub async fn job(db: &mut SqliteConnection, id: i64) -> sqlx::Result<Option<JobView>> {
    let found = sqlx::query(sql::JOB).bind(id).fetch_optional(db).await?;
    found.as_ref().map(Noun::of).transpose()
}

pub async fn chain(db: &mut SqliteConnection, id: i64) -> sqlx::Result<Vec<JobView>> {
    let found = sqlx::query(sql::CHAIN).bind(id).fetch_all(db).await?;
    nouns(&found)
}

pub async fn attempts(db: &mut SqliteConnection, id: i64) -> sqlx::Result<Vec<AttemptView>> {
    let found = sqlx::query(sql::ATTEMPTS).bind(id).fetch_all(db).await?;
    nouns(&found)
}

pub async fn cases(
    db: &mut SqliteConnection,
    id: Option<i64>,
    error: Option<i64>,
    max: i64,
) -> sqlx::Result<Vec<CaseView>> {
    let query = match error {
        Some(error) => sqlx::query(sql::CASES_ALIKE).bind(error),
        None => sqlx::query(sql::CASES).bind(id),
    };
    let found = query.bind(max.max(0)).fetch_all(db).await?;
    nouns(&found)
}

pub async fn alone_due(db: &mut SqliteConnection, before: i64, stretches: &[Stretch]) -> sqlx::Result<bool> {
    let array = rows::array(&stretches.iter().map(StretchRow::from).collect::<Vec<_>>())?;
    sqlx::query_scalar(sql::ALONE_DUE)
        .bind(array)
        .bind(before)
        .fetch_one(db)
        .await
}
