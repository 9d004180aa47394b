//! Rows into nouns, and nouns into the JSON that `json_each` turns back into rows. Times are integer microseconds.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{Row, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{
    case::CaseView,
    group::Member,
    job::Draft,
    lease::{Body, Claimed, Token, WorkerId},
    observe::{AttemptView, JobView, LaneStatus, WorkerStatus},
    state::{Ended, State},
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

/// One element of what `claim/take.sql` and `claim/alone_due.sql` read.
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

/// A job taken out of ready, with the epoch and attempt of the lease it goes under; `claim/lease.sql` reads it.
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
        // By position, as `claim/take.sql` lists them: this is read more often than anything else.
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

/// Whose it is, what it says, and whether it came too late to be run. By position, as `claim/body.sql` lists them.
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

pub fn at(row: &SqliteRow, column: &str) -> sqlx::Result<Timestamp> {
    time(row.try_get(column)?)
}

pub fn maybe_at(row: &SqliteRow, column: &str) -> sqlx::Result<Option<Timestamp>> {
    row.try_get::<Option<i64>, _>(column)?.map(time).transpose()
}

pub fn uid(row: &SqliteRow) -> sqlx::Result<Uuid> {
    let text: &str = row.try_get("uid")?;
    Uuid::try_parse(text).map_err(|e| sqlx::Error::Decode(e.into()))
}

pub fn json(text: Option<String>) -> sqlx::Result<Option<serde_json::Value>> {
    let parsed = text.map(|t| serde_json::from_str(&t)).transpose();
    parsed.map_err(|e| sqlx::Error::Decode(e.into()))
}

pub fn word<T>(text: &str, parsed: Option<T>) -> sqlx::Result<T> {
    parsed.ok_or_else(|| {
        sqlx::Error::Decode(format!("unknown value {text:?}; deploy a newer binary if the schema is newer").into())
    })
}

pub fn ended(text: &str) -> sqlx::Result<Ended> {
    word(text, Ended::parse(text))
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

pub fn job(row: &SqliteRow) -> sqlx::Result<JobView> {
    let state: &str = row.try_get("state")?;
    let last: Option<&str> = row.try_get("last_outcome")?;
    let tags = json(row.try_get("tags")?)?;
    Ok(JobView {
        id: row.try_get("id")?,
        uid: uid(row)?,
        kind: row.try_get("kind")?,
        version: row.try_get("version")?,
        queue: row.try_get("queue")?,
        priority: row.try_get("priority")?,
        state: word(state, State::parse(state))?,
        attempt: row.try_get("attempt")?,
        attempts_max: row.try_get("attempts_max")?,
        epoch: row.try_get("epoch")?,
        due_at: maybe_at(row, "due_at")?,
        worker: row.try_get("worker")?,
        claimed_at: maybe_at(row, "claimed_at")?,
        last_outcome: last.map(ended).transpose()?,
        last_ended_at: maybe_at(row, "last_ended_at")?,
        last_error: row.try_get("last_error")?,
        result: json(row.try_get("result")?)?,
        payload: json(row.try_get("payload")?)?.unwrap_or_default(),
        tags: tags.and_then(|t| serde_json::from_value(t).ok()).unwrap_or_default(),
        chain: row.try_get("chain")?,
        position: row.try_get("position")?,
        expires_at: maybe_at(row, "expires_at")?,
        created_at: at(row, "created_at")?,
        waits_for: row.try_get("waits_for")?,
        group: row.try_get("in_group")?,
        key: row.try_get("key")?,
    })
}

pub fn attempt(row: &SqliteRow) -> sqlx::Result<AttemptView> {
    Ok(AttemptView {
        epoch: row.try_get("epoch")?,
        attempt: row.try_get("attempt")?,
        worker: row.try_get("worker")?,
        outcome: ended(row.try_get("outcome")?)?,
        started_at: at(row, "started_at")?,
        ended_at: at(row, "ended_at")?,
        error: row.try_get("error")?,
        result: json(row.try_get("result")?)?,
    })
}

pub fn case(row: &SqliteRow) -> sqlx::Result<CaseView> {
    Ok(CaseView {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        queue: row.try_get("queue")?,
        reason: row.try_get("reason")?,
        attempt: row.try_get("attempt")?,
        attempts_max: row.try_get("attempts_max")?,
        retired_at: at(row, "retired_at")?,
        history: json(row.try_get("history")?)?.unwrap_or_default(),
        error_no: row.try_get("error_no")?,
        owner: row.try_get("owner")?,
        note: row.try_get("note")?,
    })
}

pub fn lane(row: &SqliteRow) -> sqlx::Result<LaneStatus> {
    Ok(LaneStatus {
        queue: row.try_get("queue")?,
        kind: row.try_get("kind")?,
        due: row.try_get("due")?,
        scheduled: row.try_get("scheduled")?,
        waiting: row.try_get("waiting")?,
        leased: row.try_get("leased")?,
        cases: row.try_get("cases")?,
        more: row.try_get("more")?,
        oldest_due_ms: row.try_get("oldest_due_ms")?,
    })
}

pub fn worker(row: &SqliteRow) -> sqlx::Result<WorkerStatus> {
    Ok(WorkerStatus {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        lease_ms: row.try_get("lease_ms")?,
        beat_age_ms: row.try_get("beat_age_ms")?,
        dead: row.try_get("dead")?,
        leases: row.try_get("leases")?,
        started_at: at(row, "started_at")?,
    })
}
