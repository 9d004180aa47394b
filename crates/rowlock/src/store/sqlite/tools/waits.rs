//! Waits on SQLite: completing a name, the sweep, and where a job stands.
//!
//! Writers follow each other here, and each sees what the one before it committed: no job can miss a completion, so the
//! sweep has only limits to look at.

use serde::Serialize;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use crate::store::sqlite::{
    enqueue,
    rows::{self, WaitingRow},
    settle, sql,
};
use crate::{
    job::Draft,
    state::{Ended, State, after_wait},
    store::{
        rows::Columns,
        waits::{EXPIRED_WAITING, NOT_COMPLETED, WaitOver},
    },
};

/// Whether the sweep of waits, of groups and of cases have something to do.
pub async fn due(db: &mut SqliteConnection, now: i64) -> sqlx::Result<(bool, bool, bool)> {
    sqlx::query_as(sql::WAITS_DUE).bind(now).fetch_one(db).await
}

/// One element of what the statements that move completed waits read; a draft's row has the field too.
#[derive(Serialize)]
struct Name<'a> {
    waits_for: &'a str,
}

/// Bodies, then waits, then those back out of it whose name is completed already.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Vec<i64>> {
    let array = rows::array(&drafts.iter().map(WaitingRow::from).collect::<Vec<_>>())?;
    let mut ids: Vec<i64> = sqlx::query_scalar(sql::ENQUEUE_WAITING)
        .bind(&array)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    ids.sort_unstable();
    sqlx::query(sql::COMPLETE_MOVE)
        .bind(&array)
        .bind(now)
        .execute(&mut *db)
        .await?;
    Ok(ids)
}

/// The queues of the jobs that moved, one entry per job; `None` when the name was completed before.
pub async fn complete(
    db: &mut SqliteConnection,
    now: i64,
    name: &str,
    answer: Option<&str>,
) -> sqlx::Result<Option<Vec<i64>>> {
    let new = sqlx::query(sql::COMPLETE)
        .bind(name)
        .bind(answer)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    if new.is_none() {
        return Ok(None);
    }
    let mut queues: Vec<i64> = sqlx::query_scalar(sql::COMPLETE_MOVE)
        .bind(rows::array(&[Name { waits_for: name }])?)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    queues.sort_unstable();
    Ok(Some(queues))
}

/// On a caller's own connection, in or out of a transaction: all or nothing either way.
pub async fn complete_whole(
    db: &mut SqliteConnection,
    now: i64,
    name: &str,
    answer: Option<&str>,
) -> sqlx::Result<Option<Vec<i64>>> {
    match db.begin().await {
        Ok(mut tx) => {
            let moved = complete(&mut tx, now, name, answer).await?;
            tx.commit().await?;
            return Ok(moved);
        }
        Err(error) if enqueue::within_transaction(&error) => {}
        Err(error) => return Err(error),
    }
    // The caller wrote `begin` by hand and sqlx does not know: a savepoint by hand goes with it.
    sqlx::raw_sql("savepoint rowlock_complete").execute(&mut *db).await?;
    let moved = complete(&mut *db, now, name, answer).await;
    if moved.is_err() {
        sqlx::raw_sql("rollback to savepoint rowlock_complete")
            .execute(&mut *db)
            .await?;
    }
    sqlx::raw_sql("release savepoint rowlock_complete")
        .execute(&mut *db)
        .await?;
    moved
}

/// One element of what the statements that end waits read.
#[derive(Serialize)]
struct Over<'a> {
    id: i64,
    reason: &'a str,
}

/// What ended, and the queues that got due work.
pub async fn end_over(db: &mut SqliteConnection, now: i64, max: i32) -> sqlx::Result<(Vec<WaitOver>, Vec<i64>)> {
    let found = sqlx::query(sql::WAITS_OVER)
        .bind(now)
        .bind(max.max(0))
        .fetch_all(&mut *db)
        .await?;
    let over: Vec<WaitOver> = found.iter().map(wait_over).collect::<sqlx::Result<_>>()?;
    if over.is_empty() {
        return Ok(Default::default());
    }
    let ends = over.iter().map(|o| Over {
        id: o.id,
        reason: &o.reason,
    });
    sqlx::query(sql::WAITS_OVER_END)
        .bind(rows::array(&ends.collect::<Vec<_>>())?)
        .bind(now)
        .execute(&mut *db)
        .await?;
    let cases = over.iter().filter(|o| after_wait(Some(o.ended)) == State::Case);
    let next = settle::compensations(db, &cases.map(|o| o.id).collect::<Vec<_>>()).await?;
    enqueue::enqueue(db, now, &next).await?;
    Ok((over, enqueue::due_queues(&next, now)))
}

fn wait_over(row: &SqliteRow) -> sqlx::Result<WaitOver> {
    let ended = row.read("outcome")?;
    let what = match ended {
        Ended::Retired => NOT_COMPLETED,
        _ => EXPIRED_WAITING,
    };
    Ok(WaitOver {
        id: row.try_get("id")?,
        queue: row.try_get("queue")?,
        kind: row.try_get("kind")?,
        ended,
        reason: format!("{what}{}", row.try_get::<&str, _>("name")?),
    })
}
