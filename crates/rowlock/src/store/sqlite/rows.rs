//! Converts rows into values, and values into the JSON that `json_each` turns back into rows. Times are integer
//! microseconds.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{Row, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{
    group::Member,
    job::Draft,
    lease::{Body, Claimed, Token, WorkerId},
    store::{Expired, Stretch},
};

/// The array that a statement reads its input from.
pub fn array<T: Serialize>(items: &[T]) -> sqlx::Result<String> {
    serde_json::to_string(items).map_err(|e| sqlx::Error::Encode(e.into()))
}

/// The array that the statements under `enqueue` read.
pub fn drafts(drafts: &[Draft]) -> sqlx::Result<String> {
    array(&drafts.iter().map(Draft::encoded).collect::<Vec<_>>())
}

/// One element of the array that `claim/take.sql` and `claim/alone_due.sql` read.
#[derive(Serialize)]
pub struct StretchRow {
    queue_no: i64,
    kind_no: i64,
    priority: i16,
    from_due: i64,
    from_id: i64,
}

impl From<&Stretch> for StretchRow {
    fn from(stretch: &Stretch) -> StretchRow {
        StretchRow {
            queue_no: stretch.queue_no,
            kind_no: stretch.kind_no,
            priority: stretch.priority,
            from_due: stretch.from.due_at.as_microsecond(),
            from_id: stretch.from.id,
        }
    }
}

/// A job taken out of ready, with the epoch and attempt of its new lease; `claim/lease.sql` reads it.
#[derive(Serialize)]
pub struct Taken {
    pub id: i64,
    epoch: i64,
    attempt: i32,
    attempts_max: i32,
    queue_no: i64,
    kind_no: i64,
    alone: i64,
    priority: i16,
    due_at: i64,
}

impl Taken {
    pub fn read(row: &SqliteRow) -> sqlx::Result<Taken> {
        // By position, in the order of `claim/take.sql`, because these rows are read more often than any others.
        Ok(Taken {
            id: row.try_get(0)?,
            epoch: row.try_get::<i64, _>(1)?.saturating_add(1),
            attempt: row.try_get::<i32, _>(2)?.saturating_add(1),
            attempts_max: row.try_get(3)?,
            queue_no: row.try_get(4)?,
            kind_no: row.try_get(5)?,
            alone: row.try_get(6)?,
            priority: row.try_get(7)?,
            due_at: row.try_get(8)?,
        })
    }

    pub fn claimed(self, worker: WorkerId, now: i64, body: Option<(Body, bool)>) -> sqlx::Result<Claimed> {
        let (body, expired) = match body {
            Some((body, expired)) => (Some(body), expired),
            None => (None, false),
        };
        Ok(Claimed {
            token: Token {
                id: self.id,
                epoch: self.epoch,
                worker,
            },
            attempt: self.attempt,
            attempts_max: self.attempts_max,
            queue_no: self.queue_no,
            kind_no: self.kind_no,
            priority: self.priority,
            due_at: time(self.due_at)?,
            claimed_at: time(now)?,
            alone: self.alone != 0,
            expired,
            body,
        })
    }
}

/// The job's id, its body, and whether the job has expired. By position, in the order of `claim/body.sql`.
pub fn body(row: &SqliteRow) -> sqlx::Result<(i64, (Body, bool))> {
    let uid: &str = row.try_get(1)?;
    let body = Body {
        uid: Uuid::try_parse(uid).map_err(|e| sqlx::Error::Decode(e.into()))?,
        kind: row.try_get(2)?,
        version: row.try_get(3)?,
        queue: row.try_get(4)?,
        payload: row.try_get(5)?,
        chain: row.try_get(6)?,
        position: row.try_get(7)?,
        created_at: time(row.try_get(8)?)?,
        member: Member::of(row.try_get(10)?, row.try_get(11)?),
        trace: row.try_get(12)?,
    };
    Ok((row.try_get(0)?, (body, row.try_get(9)?)))
}

pub fn time(us: i64) -> sqlx::Result<Timestamp> {
    Timestamp::from_microsecond(us).map_err(|e| sqlx::Error::Decode(e.into()))
}

pub fn token(row: &SqliteRow) -> sqlx::Result<Token> {
    Ok(Token {
        id: row.try_get("id")?,
        epoch: row.try_get("epoch")?,
        worker: WorkerId(row.try_get("worker")?),
    })
}

/// A dead worker's lease, and how many attempts its job may use.
pub fn lost(row: &SqliteRow, now: i64) -> sqlx::Result<(Expired, i32)> {
    let expired = Expired {
        token: token(row)?,
        attempt: row.try_get("attempt")?,
        retired: false,
        kind: row.try_get("kind")?,
        queue_no: row.try_get("queue_no")?,
        queue: row.try_get("queue")?,
        silent: Duration::from_micros(u64::try_from(now - row.try_get::<i64, _>("beat")?).unwrap_or(0)),
        group_no: row.try_get("group_no")?,
    };
    Ok((expired, row.try_get("attempts_max")?))
}
