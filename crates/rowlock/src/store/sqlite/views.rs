//! Reads for operators.

pub mod cases;
pub mod verify;
pub mod vitals;

use sqlx::SqliteConnection;

use super::{
    rows::{self, StretchRow},
    sql,
};
use crate::{
    observe::{JobFilter, JobView, Status},
    state::State,
    store::{
        Stretch,
        rows::{Noun, nouns},
        views::JobQuery,
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

pub async fn jobs(db: &mut SqliteConnection, which: JobQuery<'_>) -> sqlx::Result<Vec<JobView>> {
    match which {
        JobQuery::One(id) => Ok(job(db, id).await?.into_iter().collect()),
        JobQuery::Chain(id) => nouns(&sqlx::query(sql::CHAIN).bind(id).fetch_all(db).await?),
        JobQuery::Filter(filter) => filtered(db, filter).await,
    }
}

async fn filtered(db: &mut SqliteConnection, filter: &JobFilter) -> sqlx::Result<Vec<JobView>> {
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

pub async fn alone_due(db: &mut SqliteConnection, before: i64, stretches: &[Stretch]) -> sqlx::Result<bool> {
    let array = rows::array(&stretches.iter().map(StretchRow::from).collect::<Vec<_>>())?;
    sqlx::query_scalar(sql::ALONE_DUE)
        .bind(array)
        .bind(before)
        .fetch_one(db)
        .await
}
