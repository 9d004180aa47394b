//! Beats and recovery. Recovery is three separate transactions, because a single statement's snapshot is
//! older than the locks it waits for.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};

use super::{HANDLER_NAME, Inner, claim, conns::backend, group, rows, settle};
use crate::{
    error::{Doing, Result},
    lease::{Token, WorkerId},
    store::{Expired, Judged, Stretch},
};

/// What a lost attempt's row says.
pub const WORKER_LOST: &str = "worker lost: it stopped renewing its lease";

/// How many days and ids ahead partitions are made.
const DAYS_AHEAD: i32 = 7;
const IDS_AHEAD: i64 = 10_000_000;

pub async fn register(inner: &Inner, worker: WorkerId, name: &str, lease: Duration) -> Result<()> {
    let mut lent = inner.engine.acquire().await.doing("register")?;
    sqlx::query(inner.sql.register.clone())
        .bind(worker.0)
        .bind(name)
        .bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
        .bind(inner.now())
        .execute(lent.pg())
        .await
        .doing("register")?;
    inner.hosts.registered(worker, lent.timeline());
    lent.end("register").await?;
    Ok(())
}

pub async fn beat(inner: &Inner, worker: WorkerId) -> Result<bool> {
    let mut lent = inner.engine.acquire().await.doing("heartbeat")?;
    let alive = sqlx::query(inner.sql.beat.clone())
        .bind(worker.0)
        .bind(inner.now())
        .fetch_optional(lent.pg())
        .await
        .doing("heartbeat")?;
    lent.end("heartbeat").await?;
    if alive.is_none() {
        inner.hosts.forget(worker);
    }
    Ok(alive.is_some())
}

pub async fn mark_dead(inner: &Inner) -> Result<Judged> {
    let mut lent = inner.engine.acquire().await.doing("mark dead workers")?;
    let marked: Vec<(Option<i64>, bool)> = sqlx::query_as(inner.sql.mark_dead.clone())
        .bind(inner.now())
        .fetch_all(lent.pg())
        .await
        .doing("mark dead workers")?;
    lent.end("mark dead workers").await?;
    Ok(Judged {
        any: marked.iter().any(|(_, any)| *any),
        dead: marked.into_iter().filter_map(|(id, _)| id.map(WorkerId)).collect(),
        look_in: None,
    })
}

pub async fn expire(inner: &Inner, max: i32) -> Result<(Vec<Expired>, Vec<i64>)> {
    let mut lent = inner.engine.acquire().await.doing("expire")?;
    let mut tx = lent.pg().begin().await.doing("expire")?;
    let found = sqlx::query(inner.sql.expire.clone())
        .bind(max)
        .bind(inner.now())
        .bind(WORKER_LOST)
        .fetch_all(&mut *tx)
        .await
        .doing("expire")?;
    let expired: Vec<Expired> = found
        .iter()
        .map(rows::expired)
        .collect::<sqlx::Result<_>>()
        .doing("expire")?;
    let retired: Vec<i64> = expired.iter().filter(|e| e.retired).map(|e| e.token.id).collect();
    let mut woken: Vec<i64> = expired.iter().map(|e| e.queue_no).collect();
    if !retired.is_empty() {
        woken.extend(settle::compensate(inner, &mut tx, &retired).await?);
        let over = expired.iter().filter(|e| e.retired);
        let turns: Vec<_> = over.filter_map(|e| Some((e.group_no?, Some(e.token.id)))).collect();
        woken.extend(group::pass(inner, &mut tx, &turns).await?);
    }
    tx.commit().await.doing("expire")?;
    lent.end("expire").await?;
    Ok((expired, woken))
}

pub async fn forget_dead(inner: &Inner) -> Result<i64> {
    let mut lent = inner.engine.acquire().await.doing("remove dead workers")?;
    let mut tx = lent.pg().begin().await.doing("remove dead workers")?;
    let dead: Vec<i64> = sqlx::query_scalar(inner.sql.lock_dead.clone())
        .fetch_all(&mut *tx)
        .await
        .doing("remove dead workers")?;
    let mut holding = 0;
    if !dead.is_empty() {
        holding = sqlx::query_scalar(inner.sql.forget_dead.clone())
            .bind(&dead)
            .fetch_one(&mut *tx)
            .await
            .doing("remove dead workers")?;
    }
    tx.commit().await.doing("remove dead workers")?;
    lent.end("remove dead workers").await?;
    Ok(holding)
}

pub async fn leave(inner: &Inner, worker: WorkerId) -> Result<()> {
    let mut lent = inner.engine.acquire().await.doing("unregister")?;
    sqlx::query(inner.sql.leave.clone())
        .bind(worker.0)
        .execute(lent.pg())
        .await
        .doing("unregister")?;
    inner.hosts.forget(worker);
    lent.end("unregister").await?;
    Ok(())
}

pub async fn own_leases(inner: &Inner, worker: WorkerId, in_flight: bool) -> Result<Vec<Token>> {
    let mut lent = inner.engine.acquire().await.doing("list own leases")?;
    let list = sqlx::query(inner.sql.own_leases.clone()).bind(worker.0);
    let found = match in_flight {
        false => list.fetch_all(lent.pg()).await.doing("list own leases")?,
        true => {
            let mut tx = lent.pg().begin().await.doing("list own leases")?;
            sqlx::query(inner.sql.lock_worker.clone())
                .bind(worker.0)
                .execute(&mut *tx)
                .await
                .doing("list own leases")?;
            let found = list.fetch_all(&mut *tx).await.doing("list own leases")?;
            tx.commit().await.doing("list own leases")?;
            found
        }
    };
    lent.end("list own leases").await?;
    let token = |row: &sqlx::postgres::PgRow| {
        Ok(Token {
            id: row.try_get("id")?,
            epoch: row.try_get("epoch")?,
            worker,
        })
    };
    found
        .iter()
        .map(token)
        .collect::<sqlx::Result<_>>()
        .doing("list own leases")
}

pub async fn alone_due(inner: &Inner, stretches: &[Stretch], longer_than: Duration) -> Result<bool> {
    let mut lent = inner.engine.acquire().await.doing("claim")?;
    let [queue_nos, kind_nos] = claim::lanes(stretches);
    let due = sqlx::query_scalar(inner.sql.alone_due.clone())
        .bind(queue_nos)
        .bind(kind_nos)
        .bind(stretches.iter().map(|p| p.priority).collect::<Vec<_>>())
        .bind(inner.now())
        .bind(i64::try_from(longer_than.as_micros()).unwrap_or(i64::MAX))
        .fetch_one(lent.pg())
        .await
        .doing("claim")?;
    lent.end("claim").await?;
    Ok(due)
}

/// Where a handler's connection was when it was ended.
pub enum Terminated {
    /// It was in its transaction, which is over now.
    Inside,
    /// It was outside any: somebody has ended it by hand.
    Outside,
    /// There is none such any more.
    Gone,
}

/// Ends it. What was sent to a server that has been left is nothing to the one that took over.
pub async fn terminate(inner: &Inner, holder: i64) -> Result<Terminated> {
    let mut lent = inner.engine.acquire().await.doing("end a backend")?;
    let (timeline, number) = backend(holder);
    let mut was = Terminated::Gone;
    if timeline == lent.timeline() {
        was = match &inner.hosts.pooler {
            None => end(inner, lent.pg(), Some(number), HANDLER_NAME).await?,
            // While it lasts; then its connection is somebody else's.
            Some(pooler) => match transaction(inner, lent.pg(), number).await? {
                None => Terminated::Gone,
                Some((no, _)) => {
                    let name = format!("{}{no}", pooler.name(HANDLER_NAME));
                    let cut = end(inner, lent.pg(), None, &name).await?;
                    // Asked when it is over: before, it may have been about to commit.
                    match (&cut, transaction(inner, lent.pg(), number).await?) {
                        (Terminated::Gone, Some((_, true))) => Terminated::Outside,
                        _ => cut,
                    }
                }
            },
        };
    }
    lent.end("end a backend").await?;
    Ok(was)
}

/// The number in full of a transaction behind a pooler, and whether it has been committed.
async fn transaction(inner: &Inner, pg: &mut PgConnection, number: i32) -> Result<Option<(i64, bool)>> {
    sqlx::query_as(inner.sql.transaction.clone())
        .bind(i64::from(number as u32))
        .fetch_optional(pg)
        .await
        .doing("end a backend")
}

async fn end(inner: &Inner, pg: &mut PgConnection, pid: Option<i32>, name: &str) -> Result<Terminated> {
    let found = sqlx::query(inner.sql.terminate.clone())
        .bind(pid)
        .bind(name)
        .fetch_optional(pg)
        .await
        .doing("end a backend")?;
    let Some(row) = found else { return Ok(Terminated::Gone) };
    let outside: Option<bool> = row.try_get("outside").doing("end a backend")?;
    Ok(if outside == Some(true) {
        Terminated::Outside
    } else {
        Terminated::Inside
    })
}

pub async fn make_partitions(inner: &Inner, pg: &mut PgConnection) -> Result<()> {
    sqlx::query(inner.sql.partitions.clone())
        .bind(DAYS_AHEAD)
        .bind(IDS_AHEAD)
        .execute(pg)
        .await
        .doing("make partitions")?;
    Ok(())
}
