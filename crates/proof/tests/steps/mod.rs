//! The engine's statements as single steps on connections of the test's own, so that a test decides what happens
//! between two of them. The texts are the product's files; parameters are bound as `store/postgres` binds them.
#![allow(dead_code, reason = "each suite uses a part of it")]

pub(crate) mod catalog;
pub(crate) mod explain;
pub(crate) mod journal;
pub(crate) mod session;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use rowlock::{Ended, State};
use sqlx::{PgConnection, Row};

/// The range that the steps enqueue to and claim from by default.
pub(crate) const QUEUE: i64 = 70;
pub(crate) const KIND: i64 = 71;
pub(crate) const PRIORITY: i16 = 3;

/// A statement's text by its file's path.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../rowlock/sql/postgres/",
            $name,
            ".sql"
        ))
    };
}
pub(crate) use sql;

type Time = Option<jiff_sqlx::Timestamp>;

const NOW: Time = None;

/// What a step's SQL said when it was refused; races turn on the code.
pub(crate) type Said<T> = Result<T, sqlx::Error>;

/// A claimed job, as much of it as the races need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) id: i64,
    pub(crate) epoch: i64,
    pub(crate) worker: i64,
    pub(crate) attempt: i32,
    pub(crate) due_at: Timestamp,
}

/// Enqueues `count` jobs that are due now, with this many attempts; ids in order.
pub(crate) async fn enqueue(pg: &mut PgConnection, count: usize, attempts_max: i32) -> Vec<i64> {
    enqueue_to(pg, (QUEUE, KIND, PRIORITY), count, attempts_max, 0).await
}

/// Enqueues to a range (queue, kind, priority), due after `delay_s`.
pub(crate) async fn enqueue_to(
    pg: &mut PgConnection,
    lane: (i64, i64, i16),
    count: usize,
    attempts_max: i32,
    delay_s: i64,
) -> Vec<i64> {
    fn times<T: Clone>(value: T, count: usize) -> Vec<T> {
        vec![value; count]
    }
    let rows = sqlx::query(sql!("enqueue/jobs"))
        .bind(NOW)
        .bind(None::<&str>)
        .bind(None::<Vec<i64>>)
        .bind((0..count).map(|_| uuid::Uuid::now_v7()).collect::<Vec<_>>())
        .bind(times("step", count))
        .bind(times(lane.1, count))
        .bind(times(1i32, count))
        .bind(times("steps", count))
        .bind(times(lane.0, count))
        .bind(times(lane.2, count))
        .bind(times(attempts_max, count))
        .bind(times("{}", count))
        .bind(times(None::<&str>, count))
        .bind(times(None::<i64>, count))
        .bind(times(0i32, count))
        .bind(times(NOW, count))
        .bind(times(delay_s * 1_000_000, count))
        .bind(times(NOW, count))
        .bind(times(None::<&str>, count))
        .bind(times(None::<&str>, count))
        .fetch_all(pg)
        .await
        .unwrap();
    rows.iter().map(|r| r.get("id")).collect()
}

/// Registers a worker with a lease of 15 s.
pub(crate) async fn register(pg: &mut PgConnection, worker: i64) {
    let register = sqlx::query(sql!("worker/register"))
        .bind(worker)
        .bind("step")
        .bind(15_000i64)
        .bind(NOW);
    register.execute(pg).await.unwrap();
}

/// Claims up to `places` jobs of the range from its beginning; `None` when the worker is dead.
pub(crate) async fn claim(pg: &mut PgConnection, worker: i64, places: i32) -> Option<Vec<Held>> {
    claim_from(pg, worker, places, Timestamp::UNIX_EPOCH, 0).await.unwrap()
}

/// Claims only what recovery put back.
pub(crate) async fn claim_alone(pg: &mut PgConnection, worker: i64) -> Option<Vec<Held>> {
    claim_with(pg, worker, 1, (Timestamp::UNIX_EPOCH, 0), true)
        .await
        .unwrap()
}

/// Claims from a cursor.
pub(crate) async fn claim_from(
    pg: &mut PgConnection,
    worker: i64,
    places: i32,
    due_at: Timestamp,
    id: i64,
) -> Said<Option<Vec<Held>>> {
    claim_with(pg, worker, places, (due_at, id), false).await
}

async fn claim_with(
    pg: &mut PgConnection,
    worker: i64,
    places: i32,
    cursor: (Timestamp, i64),
    alone: bool,
) -> Said<Option<Vec<Held>>> {
    let rows = sqlx::query(sql!("claim/take"))
        .bind(worker)
        .bind(vec![1i32])
        .bind(vec![places])
        .bind(vec![QUEUE])
        .bind(vec![KIND])
        .bind(vec![PRIORITY])
        .bind(vec![cursor.0.to_sqlx()])
        .bind(vec![cursor.1])
        .bind(NOW)
        .bind(alone)
        .bind(vec![1i32])
        .fetch_all(pg)
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let held = |row: &sqlx::postgres::PgRow| {
        let id: Option<i64> = row.get("id");
        id.map(|id| Held {
            id,
            epoch: row.get("epoch"),
            worker,
            attempt: row.get("attempt"),
            due_at: row.get::<jiff_sqlx::Timestamp, _>("due_at").to_jiff(),
        })
    };
    Ok(Some(rows.iter().filter_map(held).collect()))
}

/// What settle says of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) applied: bool,
    pub(crate) marked: bool,
}

pub(crate) const APPLIED: Settled = Settled {
    applied: true,
    marked: true,
};

pub(crate) const REFUSED: Settled = Settled {
    applied: false,
    marked: true,
};

/// Settles one attempt as done.
pub(crate) async fn done(pg: &mut PgConnection, held: Held) -> Settled {
    settle(pg, held, Ended::Done, State::Finished, None).await.unwrap()
}

/// Settles one attempt; with a marker as inside a handler's transaction.
pub(crate) async fn settle(
    pg: &mut PgConnection,
    held: Held,
    ended: Ended,
    to: State,
    marker: Option<&str>,
) -> Said<Settled> {
    if ended == Ended::Done && to == State::Finished {
        return match marker {
            Some(marker) => settle_one(pg, held, marker).await,
            None => settle_done(pg, held).await,
        };
    }
    let row = sqlx::query(sql!("settle/attempts"))
        .bind(vec![held.id])
        .bind(vec![held.epoch])
        .bind(vec![held.worker])
        .bind(vec![ended.as_str()])
        .bind(vec![to.as_str()])
        .bind(vec![0i64])
        .bind(vec![(ended != Ended::Done).then_some("said so")])
        .bind(vec![None::<&str>])
        .bind(NOW)
        .bind(marker)
        .fetch_one(pg)
        .await?;
    Ok(Settled {
        applied: row.get::<Option<i64>, _>("id").is_some(),
        marked: row.get("marked"),
    })
}

/// The statement for a handler's transaction that is done with nothing behind it. After what it raises the transaction
/// can only be rolled back.
async fn settle_one(pg: &mut PgConnection, held: Held, marker: &str) -> Said<Settled> {
    let settle = sqlx::query(sql!("settle/one"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind(marker)
        .bind(None::<&str>)
        .bind(NOW)
        .bind(None::<uuid::Uuid>)
        .bind(None::<&str>)
        .bind(None::<i64>)
        .bind(None::<i32>)
        .bind(None::<&str>)
        .bind(None::<i64>)
        .bind(None::<i16>)
        .bind(None::<i32>)
        .bind(None::<&str>)
        .bind(None::<&str>)
        .bind(None::<i64>)
        .bind(None::<i32>)
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(None::<i64>)
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(None::<&str>)
        .bind(None::<&str>);
    let (applied, marked) = match settle.execute(pg).await {
        Ok(_) => (true, true),
        Err(e) => match e.as_database_error().and_then(|e| e.code()).as_deref() {
            Some("RL001") => (false, true),
            Some("RL002") => (false, false),
            _ => return Err(e),
        },
    };
    Ok(Settled { applied, marked })
}

/// The statement for engine batches that are done with nothing behind them.
async fn settle_done(pg: &mut PgConnection, held: Held) -> Said<Settled> {
    let row = sqlx::query(sql!("settle/done"))
        .bind(vec![held.id])
        .bind(vec![held.epoch])
        .bind(vec![held.worker])
        .bind(vec![None::<&str>])
        .bind(NOW)
        .fetch_optional(pg)
        .await?;
    Ok(Settled {
        applied: row.is_some(),
        marked: true,
    })
}

/// Renews; `false` when declared dead.
pub(crate) async fn beat(pg: &mut PgConnection, worker: i64) -> Said<bool> {
    let row = sqlx::query(sql!("worker/beat"))
        .bind(worker)
        .bind(NOW)
        .fetch_optional(pg)
        .await?;
    Ok(row.is_some())
}

/// Declares dead every worker without a heartbeat for a lease, as seen `ahead_s` from now.
pub(crate) async fn mark_dead(pg: &mut PgConnection, ahead_s: i64) -> Said<Vec<i64>> {
    let now = Timestamp::now() + jiff::SignedDuration::from_secs(ahead_s);
    let marked: Vec<(Option<i64>, bool)> = sqlx::query_as(sql!("worker/mark_dead"))
        .bind(now.to_sqlx())
        .fetch_all(pg)
        .await?;
    Ok(marked.into_iter().filter_map(|(id, _)| id).collect())
}

/// Ends leases of dead workers; the ids.
pub(crate) async fn expire(pg: &mut PgConnection) -> Vec<i64> {
    let rows = sqlx::query(sql!("worker/expire"))
        .bind(1000i32)
        .bind(NOW)
        .bind("worker lost")
        .fetch_all(pg)
        .await
        .unwrap();
    let mut ids: Vec<i64> = rows.iter().map(|r| r.get("id")).collect();
    ids.sort_unstable();
    ids
}

/// First half of forgetting: the dead workers that could be locked.
pub(crate) async fn lock_dead(pg: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar(sql!("worker/lock_dead"))
        .fetch_all(pg)
        .await
        .unwrap()
}

/// Second half: removes those that hold nothing; how many still do.
pub(crate) async fn forget_dead(pg: &mut PgConnection, dead: &[i64]) -> i64 {
    sqlx::query_scalar(sql!("worker/forget_dead"))
        .bind(dead)
        .fetch_one(pg)
        .await
        .unwrap()
}

/// Both halves of listing a worker's own leases, in the given transaction.
pub(crate) async fn own_leases(pg: &mut PgConnection, worker: i64) -> Vec<i64> {
    sqlx::query(sql!("worker/lock"))
        .bind(worker)
        .execute(&mut *pg)
        .await
        .unwrap();
    let rows = sqlx::query(sql!("worker/leases"))
        .bind(worker)
        .fetch_all(pg)
        .await
        .unwrap();
    rows.iter().map(|r| r.get("id")).collect()
}

/// What became of a commit whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    Ended(Ended),
    StillLeased,
    Lost,
}

/// Both halves of resolving an unknown commit, in the given transaction.
pub(crate) async fn resolve(pg: &mut PgConnection, held: Held) -> Said<Resolved> {
    let leased: Option<i64> = sqlx::query_scalar(sql!("settle/resolve_lock"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .fetch_optional(&mut *pg)
        .await?;
    let outcome: Option<String> = sqlx::query_scalar(sql!("settle/resolve_outcome"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .fetch_optional(pg)
        .await?;
    Ok(match (outcome, leased) {
        (Some(word), _) => Resolved::Ended(Ended::parse(&word).unwrap()),
        (None, Some(_)) => Resolved::StillLeased,
        (None, None) => Resolved::Lost,
    })
}

/// Puts a case back; whether there was one.
pub(crate) async fn reopen(pg: &mut PgConnection, id: i64) -> Said<bool> {
    let reopened = sqlx::query(sql!("case/reopen"))
        .bind(id)
        .bind("tester")
        .fetch_one(pg)
        .await;
    match reopened {
        Ok(_) => Ok(true),
        // It is no case.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("RL011") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes partitions as the engine does; how many were made.
pub(crate) async fn partitions(pg: &mut PgConnection) -> Said<i32> {
    sqlx::query_scalar(sql!("job/partitions"))
        .bind(7i32)
        .bind(10_000_000i64)
        .fetch_one(pg)
        .await
}
