//! Claim on SQLite: a few statements under the write lock.

use std::collections::{HashMap, HashSet};

use sqlx::SqliteConnection;

use super::{
    breaker,
    rows::{self, StretchRow, Taken},
    sql,
};
use crate::store::{ClaimAsk, ClaimReply};

/// Takes due jobs queue by queue. Under the write lock no other claim can run, and the worker cannot be declared dead
/// meanwhile.
pub async fn claim(db: &mut SqliteConnection, now: i64, ask: &ClaimAsk) -> sqlx::Result<ClaimReply> {
    let mut taken = Vec::new();
    let mut lanes: HashMap<i64, Vec<StretchRow>> = HashMap::with_capacity(ask.queues.len());
    let shut = shut(db, ask).await?;
    for stretch in ask.stretches.iter().filter(|stretch| !shut.contains(&stretch.kind_no)) {
        lanes
            .entry(stretch.queue_no)
            .or_default()
            .push(StretchRow::from(stretch));
    }
    for (queue_no, places) in &ask.queues {
        let rows = sqlx::query(sql::CLAIM)
            .bind(rows::array(&lanes.remove(queue_no).unwrap_or_default())?)
            .bind(queue_no)
            .bind(i64::from(ask.alone))
            .bind(now)
            // A negative limit would mean no limit.
            .bind((*places).max(0))
            .bind(ask.worker.0)
            .fetch_all(&mut *db)
            .await?;
        for row in &rows {
            taken.push(Taken::read(row)?);
        }
    }
    if taken.is_empty() {
        let alive = sqlx::query(sql::CLAIM_WORKER)
            .bind(ask.worker.0)
            .fetch_optional(&mut *db)
            .await?;
        return Ok(match alive {
            Some(_) => ClaimReply::Jobs(Vec::new()),
            None => ClaimReply::Dead,
        });
    }
    let found = sqlx::query(sql::CLAIM_HOLD)
        .bind(rows::array(&taken)?)
        .bind(ask.worker.0)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    // A body that cannot be read counts as missing: one bad row must not fail the claim of the others.
    let mut bodies: HashMap<i64, _> = found.iter().filter_map(|row| rows::body(row).ok()).collect();
    let claimed = taken.into_iter().map(|t| {
        let body = bodies.remove(&t.id);
        t.claimed(ask.worker, now, body)
    });
    Ok(ClaimReply::Jobs(claimed.collect::<sqlx::Result<_>>()?))
}

/// The kinds with a breaker that is not closed.
async fn shut(db: &mut SqliteConnection, ask: &ClaimAsk) -> sqlx::Result<HashSet<i64>> {
    if ask.bound.is_empty() {
        return Ok(HashSet::new());
    }
    let names: Vec<&str> = ask.bound.iter().map(|(_, name)| name.as_str()).collect();
    let closed = breaker::closed(db, &names).await?;
    let shut = ask.bound.iter().filter(|(_, name)| !closed.contains(name));
    Ok(shut.map(|(kind_no, _)| *kind_no).collect())
}
