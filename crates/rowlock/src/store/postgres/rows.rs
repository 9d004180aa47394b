//! Converts rows into values. One bad row must not fail a whole claim, so values that may be missing are optional here.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use crate::{
    group::Member,
    lease::{Body, Claimed, Token, WorkerId},
    store::{Expired, rows::Columns},
};

pub fn at(row: &PgRow, column: &str) -> sqlx::Result<Timestamp> {
    row.read(column)
}

pub fn maybe_at(row: &PgRow, column: &str) -> sqlx::Result<Option<Timestamp>> {
    row.read(column)
}

/// The time in a claim's last row; `None` for the row of a job.
pub fn claimed_at(row: &PgRow) -> sqlx::Result<Option<Timestamp>> {
    match row.try_get::<Option<i64>, _>(0)? {
        Some(_) => Ok(None),
        None => row.try_get::<jiff_sqlx::Timestamp, _>(7).map(|t| Some(t.to_jiff())),
    }
}

/// `None` for the row that only says that the worker is alive. Columns are read by position, in the order of
/// `claim/take.sql`, because these rows are read more often than any others.
pub fn claimed(row: &PgRow, worker: WorkerId, alone: bool, claimed_at: Timestamp) -> sqlx::Result<Option<Claimed>> {
    let Some(id) = row.try_get::<Option<i64>, _>(0)? else {
        return Ok(None);
    };
    let time = |column: usize| row.try_get::<jiff_sqlx::Timestamp, _>(column).map(|t| t.to_jiff());
    let kind: Option<String> = row.try_get(9)?;
    let marks: i16 = row.try_get(18)?;
    let body = match kind {
        None => None,
        Some(kind) => Some(Body {
            uid: row.try_get(8)?,
            kind,
            version: row.try_get(10)?,
            queue: row.try_get(11)?,
            payload: row.try_get(12)?,
            chain: row.try_get(13)?,
            position: row.try_get(14)?,
            created_at: time(15)?,
            member: Member::of(row.try_get(16)?, Some(marks & 2 != 0)),
            trace: row.try_get(17)?,
        }),
    };
    Ok(Some(Claimed {
        token: Token {
            id,
            epoch: row.try_get(1)?,
            worker,
        },
        attempt: row.try_get(2)?,
        attempts_max: row.try_get(3)?,
        queue_no: row.try_get(4)?,
        kind_no: row.try_get(5)?,
        alone,
        priority: row.try_get(6)?,
        due_at: time(7)?,
        claimed_at,
        expired: marks & 1 != 0,
        body,
    }))
}

pub fn expired(row: &PgRow) -> sqlx::Result<Expired> {
    let queue: String = row.try_get::<Option<_>, _>("queue")?.unwrap_or_default();
    let kind: Option<String> = row.try_get("kind")?;
    let silent_s: f64 = row.try_get("silent_s")?;
    Ok(Expired {
        token: Token {
            id: row.try_get("id")?,
            epoch: row.try_get("epoch")?,
            worker: WorkerId(row.try_get("worker")?),
        },
        attempt: row.try_get("attempt")?,
        retired: row.try_get("retired")?,
        kind: kind.unwrap_or_default(),
        queue_no: crate::job::queue_no(&queue),
        queue,
        silent: Duration::try_from_secs_f64(silent_s).unwrap_or_default(),
        group_no: row.try_get("group_no")?,
    })
}
