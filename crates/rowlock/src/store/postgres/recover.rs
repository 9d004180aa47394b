//! Heartbeats and recovery. Recovery is three separate transactions, because a statement's snapshot is older than the
//! locks that it waits for.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};

use super::{HANDLER_NAME, Inner, claim, conns::backend, rows};
use crate::{
    error::{Doing, Result},
    lease::{Token, WorkerId},
    store::{Expired, Judged, Stretch},
};

/// The error in the row of a lost attempt.
pub const WORKER_LOST: &str = "worker lost: it stopped renewing its lease";

/// How many days and ids ahead partitions are created.
const DAYS_AHEAD: i32 = 7;
const IDS_AHEAD: i64 = 10_000_000;

pub async fn register(inner: &Inner, worker: WorkerId, name: &str, lease: Duration) -> Result<()> {
    let enter = inner.query(&inner.sql.register).bind(worker.0).bind(name);
    let enter = enter.bind(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX));
    let enter = enter.bind(inner.now());
    let entered = inner.run_lent(inner.limit(), "register", async |lent| {
        enter.execute(lent.pg()).await?;
        inner.hosts.registered(worker, lent.timeline());
        Ok(())
    });
    entered.await
}

pub async fn beat(inner: &Inner, worker: WorkerId) -> Result<bool> {
    let beat = inner.query(&inner.sql.beat).bind(worker.0).bind(inner.now());
    let beat = inner.run_within(inner.timing.lock, "heartbeat", async |pg| {
        Ok(beat.fetch_optional(pg).await?.is_some())
    });
    let alive = beat.await?;
    if !alive {
        inner.hosts.forget(worker);
    }
    Ok(alive)
}

pub async fn mark_dead(inner: &Inner) -> Result<Judged> {
    let mark = inner.query_as(&inner.sql.mark_dead).bind(inner.now());
    let mark = inner.run("mark dead workers", async |pg| Ok(mark.fetch_all(pg).await?));
    let marked: Vec<(Option<i64>, bool)> = mark.await?;
    Ok(Judged {
        any: marked.iter().any(|(_, any)| *any),
        dead: marked.into_iter().filter_map(|(id, _)| id.map(WorkerId)).collect(),
        look_in: None,
    })
}

pub async fn expire(inner: &Inner, max: i32) -> Result<(Vec<Expired>, Vec<i64>)> {
    let expire = inner
        .query(&inner.sql.expire)
        .bind(max)
        .bind(inner.now())
        .bind(WORKER_LOST);
    let ended = inner.run("expire", async |pg| {
        let found = expire.fetch_all(pg).await?;
        let expired: Vec<Expired> = found.iter().map(rows::expired).collect::<sqlx::Result<_>>()?;
        let mut woken: Vec<i64> = expired.iter().map(|e| e.queue_no).collect();
        if let Some(row) = found.first() {
            woken.extend(row.try_get::<Option<Vec<i64>>, _>("woken")?.unwrap_or_default());
        }
        Ok((expired, woken))
    });
    ended.await
}

pub async fn forget_dead(inner: &Inner) -> Result<i64> {
    let forget = inner.run("remove dead workers", async |pg| {
        let mut tx = pg.begin().await?;
        let dead: Vec<i64> = inner.query_scalar(&inner.sql.lock_dead).fetch_all(&mut *tx).await?;
        let mut holding = 0;
        if !dead.is_empty() {
            let forget = inner.query_scalar(&inner.sql.forget_dead).bind(&dead);
            holding = forget.fetch_one(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(holding)
    });
    forget.await
}

pub async fn leave(inner: &Inner, worker: WorkerId) -> Result<()> {
    let leave = inner.query(&inner.sql.leave).bind(worker.0);
    let left = inner.run("unregister", async |pg| {
        leave.execute(pg).await?;
        inner.hosts.forget(worker);
        Ok(())
    });
    left.await
}

pub async fn own_leases(inner: &Inner, worker: WorkerId, in_flight: bool) -> Result<Vec<Token>> {
    let list = inner.query_as(&inner.sql.own_leases).bind(worker.0);
    let listed = inner.run("list own leases", async |pg| {
        let found: Vec<(i64, i64)> = match in_flight {
            false => list.fetch_all(pg).await?,
            true => {
                let mut tx = pg.begin().await?;
                let lock = inner.query(&inner.sql.lock_worker).bind(worker.0);
                lock.execute(&mut *tx).await?;
                let found = list.fetch_all(&mut *tx).await?;
                tx.commit().await?;
                found
            }
        };
        let token = |(id, epoch)| Token { id, epoch, worker };
        Ok(found.into_iter().map(token).collect())
    });
    listed.await
}

pub async fn alone_due(inner: &Inner, stretches: &[Stretch], longer_than: Duration) -> Result<bool> {
    let [queue_nos, kind_nos] = claim::lanes(stretches);
    let look = inner
        .query_scalar(&inner.sql.alone_due)
        .bind(queue_nos)
        .bind(kind_nos)
        .bind(stretches.iter().map(|p| p.priority).collect::<Vec<_>>())
        .bind(inner.now())
        .bind(i64::try_from(longer_than.as_micros()).unwrap_or(i64::MAX));
    inner.run("claim", async |pg| Ok(look.fetch_one(pg).await?)).await
}

/// The state of a handler's connection when it was ended.
pub enum Terminated {
    /// The connection was in its transaction, which is over now.
    Inside,
    /// The connection was outside a transaction: user code had ended its transaction.
    Outside,
    /// The connection no longer exists.
    Gone,
}

/// Ends a handler's connection. A connection to a server that has been left does not exist on the new primary.
pub async fn terminate(inner: &Inner, holder: i64) -> Result<Terminated> {
    let mut lent = inner.engine.acquire().await.doing("end a backend")?;
    let (timeline, number) = backend(holder);
    let mut was = Terminated::Gone;
    if timeline == lent.timeline() {
        was = match &inner.hosts.pooler {
            None => end(inner, lent.pg(), Some(number), HANDLER_NAME).await?,
            // Only while the transaction is open; afterwards another client may use the connection.
            Some(pooler) => match transaction(inner, lent.pg(), number).await? {
                None => Terminated::Gone,
                Some((no, _)) => {
                    let name = format!("{}{no}", pooler.name(HANDLER_NAME));
                    let cut = end(inner, lent.pg(), None, &name).await?;
                    // Checked after the end: before that, the transaction may have been about to commit.
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

/// The full number of a transaction behind a pooler, and whether it has been committed.
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
