//! Enqueue on SQLite.
//!
//! SQLite cannot write two tables in one statement, so an operation is several statements in one transaction that holds
//! the write lock. Sets are passed as one JSON array; no statement runs once per job. The files use `jsonb_each` where
//! many fields are taken from each element: it parses once, and halves the time of an enqueue.

use sqlx::{Connection, SqliteConnection};

use super::{group, keys, rows, sql, waits};
use crate::{
    job::Draft,
    key::Enqueued,
    store::keys::{Put, any_keyed},
};

/// The array of one statement holds at most this many drafts, or this many bytes of payload and one draft more.
const CHUNK_DRAFTS: usize = 1000;
const CHUNK_BYTES: usize = 8 << 20;

/// Inserts bodies first, then places, in the transaction that is open. Returns ids in input order.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Vec<i64>> {
    let mut ids = Vec::with_capacity(drafts.len());
    for chunk in chunks(drafts) {
        if chunk[0].wait.is_some() {
            ids.extend(waits::enqueue(db, now, chunk).await?);
            continue;
        }
        if chunk[0].group.is_some() {
            ids.extend(group::enqueue(db, now, chunk).await?);
            continue;
        }
        let array = rows::drafts(chunk)?;
        let mut new: Vec<i64> = sqlx::query_scalar(sql::ENQUEUE)
            .bind(array)
            .bind(now)
            .fetch_all(&mut *db)
            .await?;
        // `returning` guarantees no order, but the ids increase in input order.
        new.sort_unstable();
        ids.extend(new);
    }
    Ok(ids)
}

fn chunks(drafts: &[Draft]) -> impl Iterator<Item = &[Draft]> {
    let mut rest = drafts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |d: &&Draft| {
            let fit = bytes < CHUNK_BYTES;
            bytes += d.payload.len();
            fit
        };
        // A chunk holds only waiting jobs, only jobs of groups, or only other jobs.
        let sort = |d: &Draft| (d.wait.is_some(), d.group.is_some());
        let first = rest.first().map(sort);
        let alike = rest.iter().take(CHUNK_DRAFTS).take_while(|d| Some(sort(d)) == first);
        let len = alike.take_while(fits).count();
        let (chunk, later) = rest.split_at(len);
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// In a transaction that others may share: all or nothing, and nothing after a conflict.
pub async fn enqueue_all(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Put> {
    if !any_keyed(drafts) {
        return keys::enqueue(db, now, drafts).await;
    }
    keys::begin(db).await?;
    let put = keys::enqueue(db, now, drafts).await?;
    keys::end(db, put.is_ok()).await?;
    Ok(put)
}

/// On a caller's own connection, in or out of a transaction: all or nothing either way.
pub async fn enqueue_in(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Put> {
    if drafts.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    match db.begin().await {
        Ok(mut tx) => {
            let put = keys::enqueue(&mut tx, now, drafts).await?;
            match put {
                Ok(_) => tx.commit().await?,
                Err(_) => tx.rollback().await?,
            }
            return Ok(put);
        }
        // The caller sent `begin` as plain SQL, which sqlx does not see, so the savepoint is also made by plain SQL.
        Err(error) if within_transaction(&error) => {}
        Err(error) => return Err(error),
    }
    sqlx::raw_sql("savepoint rowlock_enqueue").execute(&mut *db).await?;
    let put = keys::enqueue(&mut *db, now, drafts).await;
    if !matches!(put, Ok(Ok(_))) {
        sqlx::raw_sql("rollback to savepoint rowlock_enqueue")
            .execute(&mut *db)
            .await?;
    }
    sqlx::raw_sql("release savepoint rowlock_enqueue")
        .execute(&mut *db)
        .await?;
    put
}

pub fn within_transaction(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|e| e.message().contains("within a transaction"))
}

/// Queues with a job among these that is new and due now.
pub fn new_due_queues(drafts: &[Draft], put: &[Enqueued], now: i64) -> Vec<i64> {
    let new = drafts.iter().zip(put).filter(|(_, put)| put.is_new());
    distinct(
        new.flat_map(|(draft, _)| due_queues(std::slice::from_ref(draft), now))
            .collect(),
    )
}

/// Queues with a job among these that is due now.
pub fn due_queues(drafts: &[Draft], now: i64) -> Vec<i64> {
    let due = |d: &&Draft| d.delay_us() == 0 && d.due_at().is_none_or(|at| at.as_microsecond() <= now);
    distinct(drafts.iter().filter(due).map(Draft::queue_no).collect())
}

pub fn distinct(mut queues: Vec<i64>) -> Vec<i64> {
    queues.sort_unstable();
    queues.dedup();
    queues
}
