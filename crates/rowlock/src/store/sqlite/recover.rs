//! Heartbeats and recovery, each in a transaction that holds the write lock.

use std::time::Duration;

use sqlx::SqliteConnection;

use super::{enqueue, group, rows, settle, sql};
use crate::{
    lease::{Token, WorkerId},
    state::{self, Ended, State},
    store::{Expired, Judged},
};

/// The error in the row of a lost attempt.
pub const WORKER_LOST: &str = "worker lost: it stopped renewing its lease";

pub async fn register(
    db: &mut SqliteConnection,
    now: i64,
    worker: WorkerId,
    name: &str,
    lease: Duration,
) -> sqlx::Result<()> {
    sqlx::query(sql::REGISTER)
        .bind(worker.0)
        .bind(name)
        .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
        .bind(now)
        .execute(db)
        .await?;
    Ok(())
}

pub async fn beat(db: &mut SqliteConnection, now: i64, worker: WorkerId) -> sqlx::Result<bool> {
    let alive = sqlx::query(sql::BEAT)
        .bind(worker.0)
        .bind(now)
        .fetch_optional(db)
        .await?;
    Ok(alive.is_some())
}

/// A worker is declared dead when it was stale at an earlier check and is stale now. A holder of the write lock may
/// delay its heartbeat past one check, but not past both.
pub async fn mark_dead(db: &mut SqliteConnection, now: i64) -> sqlx::Result<Judged> {
    let dead: Vec<i64> = sqlx::query_scalar(sql::MARK_DEAD).bind(now).fetch_all(&mut *db).await?;
    sqlx::query(sql::MARK_SUSPECT).bind(now).execute(&mut *db).await?;
    let (any, look_at): (bool, Option<i64>) = sqlx::query_as(sql::ANY_DEAD).fetch_one(&mut *db).await?;
    Ok(Judged {
        dead: dead.into_iter().map(WorkerId).collect(),
        any,
        look_in: look_at.map(|at| Duration::from_micros(u64::try_from(at - now).unwrap_or(0))),
    })
}

/// The leases that ended, and the queues with new due work.
pub async fn expire(db: &mut SqliteConnection, now: i64, max: i32) -> sqlx::Result<(Vec<Expired>, Vec<i64>)> {
    let found = sqlx::query(sql::EXPIRE).bind(max.max(0)).fetch_all(&mut *db).await?;
    let mut expired = Vec::with_capacity(found.len());
    let mut ends = Vec::with_capacity(found.len());
    for row in &found {
        let (mut lost, attempts_max) = rows::lost(row, now)?;
        let to = state::after(Ended::Lost, lost.attempt, attempts_max);
        lost.retired = to == State::Case;
        ends.push(settle::EndRow {
            id: lost.token.id,
            epoch: lost.token.epoch,
            worker: lost.token.worker.0,
            outcome: Ended::Lost.as_str(),
            place: to.as_str(),
            delay_us: 0,
            error: Some(WORKER_LOST),
            result: None,
        });
        expired.push(lost);
    }
    if expired.is_empty() {
        return Ok((expired, Vec::new()));
    }
    settle::end_leases(db, now, &ends).await?;
    let retired: Vec<i64> = expired.iter().filter(|e| e.retired).map(|e| e.token.id).collect();
    let next = settle::compensations(db, &retired).await?;
    enqueue::enqueue(db, now, &next).await?;
    let mut woken: Vec<i64> = expired.iter().map(|e| e.queue_no).collect();
    woken.extend(enqueue::due_queues(&next, now));
    let over = expired.iter().filter(|e| e.retired);
    let turns: Vec<_> = over.filter_map(|e| Some((e.group_no?, Some(e.token.id)))).collect();
    woken.extend(group::pass(db, now, &turns).await?);
    Ok((expired, enqueue::distinct(woken)))
}

/// How many dead workers still hold something.
pub async fn forget_dead(db: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query(sql::FORGET_DEAD).execute(&mut *db).await?;
    sqlx::query_scalar(sql::DEAD_HOLDING).fetch_one(&mut *db).await
}

pub async fn leave(db: &mut SqliteConnection, worker: WorkerId) -> sqlx::Result<()> {
    sqlx::query(sql::LEAVE).bind(worker.0).execute(db).await?;
    Ok(())
}

pub async fn own_leases(db: &mut SqliteConnection, worker: WorkerId) -> sqlx::Result<Vec<Token>> {
    let found: Vec<(i64, i64)> = sqlx::query_as(sql::OWN_LEASES).bind(worker.0).fetch_all(db).await?;
    Ok(found
        .into_iter()
        .map(|(id, epoch)| Token { id, epoch, worker })
        .collect())
}

/// Operator commands in plain SQL use the numbers of names, which SQLite cannot compute.
pub async fn note_names(db: &mut SqliteConnection, names: &[(i64, String)]) -> sqlx::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    sqlx::query(sql::NAMES)
        .bind(rows::array(names)?)
        .execute(db)
        .await
        .map(drop)
}
