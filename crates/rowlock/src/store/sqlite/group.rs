//! Groups on SQLite: which job has the turn, and which jobs wait. Writers run one after the other, so a turn passes on,
//! or its group is removed, in the commit that ends the head. The sweep only handles what is paused.

use serde::Serialize;
use sqlx::SqliteConnection;

use super::{rows, sql};
use crate::job::Draft;

/// Inserts bodies, then decides which jobs have the turn, then inserts places. Returns ids in input order.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Vec<i64>> {
    let mut ids: Vec<i64> = sqlx::query_scalar(sql::ENQUEUE_GROUPED)
        .bind(rows::drafts(drafts)?)
        .bind(now)
        .fetch_all(db)
        .await?;
    ids.sort_unstable();
    Ok(ids)
}

/// One element of the array that the statements that pass turns on read: a group, and the head that ended.
#[derive(Serialize)]
struct TurnRow {
    no: i64,
    head: Option<i64>,
}

/// Passes turns on, by group and the head that ended; returns the queues with new work.
pub async fn pass(db: &mut SqliteConnection, now: i64, turns: &[(i64, Option<i64>)]) -> sqlx::Result<Vec<i64>> {
    if turns.is_empty() {
        return Ok(Vec::new());
    }
    let turns: Vec<TurnRow> = turns.iter().map(|&(no, head)| TurnRow { no, head }).collect();
    sqlx::query_scalar(sql::GROUP_PASS)
        .bind(rows::array(&turns)?)
        .bind(now)
        .fetch_all(db)
        .await
}

/// Takes the heads of paused groups out of ready.
pub async fn withdraw(db: &mut SqliteConnection, now: i64) -> sqlx::Result<()> {
    sqlx::query(sql::GROUP_WITHDRAW).bind(now).execute(db).await.map(drop)
}
