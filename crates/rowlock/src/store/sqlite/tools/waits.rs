//! Waits on SQLite: completing a name, the sweep, and the place of a job.
//!
//! Writers run one after the other, and each sees the commits before it. So no job can miss a completion, and the sweep
//! only handles limits.

use serde::Serialize;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use crate::store::sqlite::{enqueue, rows, settle, sql};
use crate::{
    job::Draft,
    state::{Ended, State, after_wait},
    store::{
        rows::Columns,
        waits::{EXPIRED_WAITING, NOT_COMPLETED, WaitOver},
    },
};

/// Whether the sweeps of waits, of groups and of cases have something to do.
pub async fn due(db: &mut SqliteConnection, now: i64) -> sqlx::Result<(bool, bool, bool)> {
    sqlx::query_as(sql::WAITS_DUE).bind(now).fetch_one(db).await
}

/// One element of the array that the statements that move completed waits read; a draft's row has the field too.
#[derive(Serialize)]
struct Name<'a> {
    waits_for: &'a str,
}

/// Inserts bodies, then waits, then moves the jobs whose name is already completed to ready.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Vec<i64>> {
    let array = rows::drafts(drafts)?;
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
    // The caller sent `begin` as plain SQL, which sqlx does not see, so the savepoint is also made by plain SQL.
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

/// The waits that ended, and the queues with new due work.
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
    let mut ends = Vec::with_capacity(over.len());
    for (row, over) in found.iter().zip(&over) {
        ends.push(settle::EndRow {
            id: over.id,
            epoch: row.try_get("epoch")?,
            worker: 0,
            outcome: over.ended.as_str(),
            place: after_wait(Some(over.ended)).as_str(),
            delay_us: 0,
            error: Some(&over.reason),
            result: None,
        });
    }
    sqlx::query(sql::WAITS_OVER_LEASE)
        .bind(rows::array(&ends)?)
        .execute(&mut *db)
        .await?;
    settle::end_leases(db, now, &ends).await?;
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
