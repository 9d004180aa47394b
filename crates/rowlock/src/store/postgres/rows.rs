//! Rows into nouns. One bad row must not fail a claim for all, so what may be missing is optional here.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use crate::{
    case::CaseView,
    group::Member,
    lease::{Body, Claimed, Token, WorkerId},
    observe::{AttemptView, JobView, LaneStatus, WorkerStatus},
    state::{Ended, State},
    store::Expired,
};

pub fn at(row: &PgRow, column: &str) -> sqlx::Result<Timestamp> {
    row.try_get::<jiff_sqlx::Timestamp, _>(column).map(|t| t.to_jiff())
}

pub fn maybe_at(row: &PgRow, column: &str) -> sqlx::Result<Option<Timestamp>> {
    let time: Option<jiff_sqlx::Timestamp> = row.try_get(column)?;
    Ok(time.map(|t| t.to_jiff()))
}

/// PostgreSQL holds JSON that cannot be read here, such as 1e999: that is a string of its text, and the other rows are as ever.
pub fn json(text: Option<String>) -> sqlx::Result<Option<serde_json::Value>> {
    Ok(text.map(|text| serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text))))
}

pub fn word<T>(text: &str, parsed: Option<T>) -> sqlx::Result<T> {
    parsed.ok_or_else(|| {
        sqlx::Error::Decode(format!("unknown value {text:?}; deploy a newer binary if the schema is newer").into())
    })
}

pub fn ended(text: &str) -> sqlx::Result<Ended> {
    word(text, Ended::parse(text))
}

/// The time that a claim's last row tells; `None` for the row of a job.
pub fn claimed_at(row: &PgRow) -> sqlx::Result<Option<Timestamp>> {
    match row.try_get::<Option<i64>, _>(0)? {
        Some(_) => Ok(None),
        None => row.try_get::<jiff_sqlx::Timestamp, _>(7).map(|t| Some(t.to_jiff())),
    }
}

/// `None` for the row that only says that the worker is alive. By position, as `claim/take.sql` lists them: this is read more
/// often than anything else.
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

pub fn job(row: &PgRow) -> sqlx::Result<JobView> {
    let state: String = row.try_get("state")?;
    let last: Option<String> = row.try_get("last_outcome")?;
    let tags = json(row.try_get("tags")?)?;
    Ok(JobView {
        id: row.try_get("id")?,
        uid: row.try_get("uid")?,
        kind: row.try_get("kind")?,
        version: row.try_get("version")?,
        queue: row.try_get("queue")?,
        priority: row.try_get("priority")?,
        state: word(&state, State::parse(&state))?,
        attempt: row.try_get("attempt")?,
        attempts_max: row.try_get("attempts_max")?,
        epoch: row.try_get("epoch")?,
        due_at: maybe_at(row, "due_at")?,
        worker: row.try_get("worker")?,
        claimed_at: maybe_at(row, "claimed_at")?,
        last_outcome: last.as_deref().map(ended).transpose()?,
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

pub fn attempt(row: &PgRow) -> sqlx::Result<AttemptView> {
    let outcome: String = row.try_get("outcome")?;
    Ok(AttemptView {
        epoch: row.try_get("epoch")?,
        attempt: row.try_get("attempt")?,
        worker: row.try_get("worker")?,
        outcome: ended(&outcome)?,
        started_at: at(row, "started_at")?,
        ended_at: at(row, "ended_at")?,
        error: row.try_get("error")?,
        result: json(row.try_get("result")?)?,
    })
}

pub fn case(row: &PgRow) -> sqlx::Result<CaseView> {
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

pub fn lane(row: &PgRow) -> sqlx::Result<LaneStatus> {
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

pub fn worker(row: &PgRow) -> sqlx::Result<WorkerStatus> {
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
