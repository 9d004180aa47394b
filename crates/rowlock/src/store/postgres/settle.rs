//! Writes how attempts ended: in engine batches, or as the last statement of a handler's transaction.
//!
//! Every lease ends in `rowlock.end_leases`. A handler's own transaction calls it through `rowlock.settle_done`, which
//! raises an error where a token no longer holds, and also inserts a plain next job.

use std::{collections::HashSet, time::Duration};

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{
    Inner,
    enqueue::{self, column},
};
use crate::{
    error::{Doing, Error, Result, sqlstate},
    job::Draft,
    state::{Ended, State},
    store::{
        SettledIn, Settlement, again,
        keys::{any_keyed, may_wait},
    },
};

/// How long a settlement whose next link has a key or a group waits for an open transaction that has it. After that, it
/// lets another settlement take its turn and tries again.
const KEY_WAIT: Duration = Duration::from_secs(1);

/// An engine batch in one commit. A lost lease does not affect the other entries.
pub async fn settle(inner: &Inner, batch: &[Settlement]) -> Result<(Vec<bool>, Vec<i64>)> {
    let mut lent = inner.engine.acquire().await.doing("settle")?;
    if batch.iter().all(|s| s.next.is_empty()) {
        let Written { applied, woken } = write_ends(inner, lent.pg(), batch, None).await?;
        lent.end("settle").await?;
        return Ok((applied, woken));
    }
    let mut tx = lent.pg().begin().await.doing("settle")?;
    if batch.iter().any(|s| may_wait(&s.next)) {
        let brief = format!(
            "set local lock_timeout = {}",
            inner.timing.lock.min(KEY_WAIT).as_millis()
        );
        let brief = sqlx::raw_sql(AssertSqlSafe(brief));
        brief.execute(&mut *tx).await.doing("settle")?;
    }
    let Written { applied, mut woken } = write_ends(inner, &mut tx, batch, None).await?;
    let held = batch.iter().zip(&applied).filter(|(_, applied)| **applied);
    woken.extend(write_next(inner, &mut tx, held.map(|(s, _)| s)).await?);
    tx.commit().await.doing("settle")?;
    lent.end("settle").await?;
    Ok((applied, distinct(woken)))
}

/// One settlement as the last statements of a handler's transaction.
pub async fn settle_in(inner: &Inner, pg: &mut PgConnection, settlement: &Settlement) -> Result<SettledIn> {
    let (mut woken, rest) = match is_done(settlement) {
        true => {
            // Usually there is at most one next job, which goes into the same statement.
            let next = plain_next(settlement);
            match write_one(inner, pg, settlement, next.flatten()).await? {
                SettledIn::Applied { woken } => (woken, next.is_none()),
                other => return Ok(other),
            }
        }
        false => {
            let marker = settlement.token.to_string();
            match write_ends(inner, pg, std::slice::from_ref(settlement), Some(&marker)).await {
                Ok(written) if written.applied == [true] => (written.woken, !settlement.next.is_empty()),
                Ok(_) => return Ok(SettledIn::LeaseLost),
                Err(error) if is_not_ours(&error) => return Ok(SettledIn::NotOurs),
                Err(error) => return Err(error),
            }
        }
    };
    if rest {
        woken.extend(write_next(inner, pg, std::iter::once(settlement)).await?);
    }
    Ok(SettledIn::Applied { woken: distinct(woken) })
}

/// The next job that `rowlock.settle_done` can insert with the outcome, or that there is none. `None` when there are
/// several next jobs, or one with a key, a wait or a group.
#[allow(clippy::option_option, reason = "no next job, and no such next job, are two things")]
pub fn plain_next(settlement: &Settlement) -> Option<Option<&Draft>> {
    match settlement.next.as_slice() {
        [] => Some(None),
        [next] if !any_keyed(&settlement.next) && next.wait.is_none() && next.group.is_none() => Some(Some(next)),
        _ => None,
    }
}

/// Whether the settlement only says that the attempt is done, apart from a result and next jobs.
pub fn is_done(settlement: &Settlement) -> bool {
    settlement.ended == Ended::Done && settlement.to == State::Finished && settlement.error.is_none()
}

/// Whether the error says that this is not the transaction in which the marker was set.
pub fn is_not_ours(error: &Error) -> bool {
    matches!(error, Error::Database { source, .. } if sqlstate(source).as_deref() == Some(NOT_OURS))
}

const NOT_OURS: &str = "RL002";

async fn write_one(
    inner: &Inner,
    pg: &mut PgConnection,
    settlement: &Settlement,
    next: Option<&Draft>,
) -> Result<SettledIn> {
    let token = settlement.token;
    let query = sqlx::query(inner.sql.settle_one.clone())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(token.to_string())
        .bind(settlement.result.as_deref())
        .bind(settlement.turn)
        .bind(next.map(Draft::to_json).transpose()?)
        .bind(inner.now());
    let answer = query.fetch_one(pg).await;
    let woken = answer.and_then(|row| row.try_get::<Option<Vec<i64>>, _>(0));
    settled_one(woken.map(Option::unwrap_or_default), next)
}

/// The answer of `rowlock.settle_done`: the queues that got work because the group's turn passed on.
pub fn settled_one(answer: sqlx::Result<Vec<i64>>, next: Option<&Draft>) -> Result<SettledIn> {
    let error = match answer {
        Ok(mut woken) => {
            woken.extend(next.map(Draft::queue_no));
            return Ok(SettledIn::Applied { woken });
        }
        Err(error) => error,
    };
    match sqlstate(&error).as_deref() {
        Some("RL001") => Ok(SettledIn::LeaseLost),
        Some(NOT_OURS) => Ok(SettledIn::NotOurs),
        _ => Err(error).doing("settle"),
    }
}

fn distinct(mut queues: Vec<i64>) -> Vec<i64> {
    queues.sort_unstable();
    queues.dedup();
    queues
}

pub struct Written {
    /// Which tokens held.
    pub applied: Vec<bool>,
    /// The queues that got work by compensations and by turns of groups.
    pub woken: Vec<i64>,
}

/// Ends the leases, with everything that follows except next jobs.
pub async fn write_ends(
    inner: &Inner,
    pg: &mut PgConnection,
    batch: &[Settlement],
    marker: Option<&str>,
) -> Result<Written> {
    // Nearly all attempts end as done.
    let other = !batch.iter().all(is_done);
    let turns = batch.iter().any(|s| s.turn.is_some());
    let delay_us = |s: &Settlement| i64::try_from(s.delay.as_micros()).unwrap_or(i64::MAX);
    let row = sqlx::query(inner.sql.settle.clone())
        .bind(column(batch, |s| s.token.id))
        .bind(column(batch, |s| s.token.epoch))
        .bind(column(batch, |s| s.token.worker.0))
        .bind(column(batch, |s| s.result.as_deref()))
        .bind(turns.then(|| column(batch, |s| s.turn)))
        .bind(marker)
        .bind(inner.now())
        .bind(other.then(|| column(batch, |s| s.ended.as_str())))
        .bind(other.then(|| column(batch, |s| s.to.as_str())))
        .bind(other.then(|| column(batch, delay_us)))
        .bind(other.then(|| column(batch, |s| s.error.as_deref())))
        .fetch_one(pg)
        .await
        .doing("settle")?;
    let held: Option<Vec<i64>> = row.try_get(0).doing("settle")?;
    let woken: Option<Vec<i64>> = row.try_get(1).doing("settle")?;
    let held: HashSet<i64> = held.unwrap_or_default().into_iter().collect();
    let applied = (1..).zip(batch).map(|(place, _)| held.contains(&place)).collect();
    Ok(Written {
        applied,
        woken: distinct(woken.unwrap_or_default()),
    })
}

/// Enqueues the next jobs of settlements that were applied; returns the queues with new work.
pub async fn write_next(
    inner: &Inner,
    pg: &mut PgConnection,
    settlements: impl Iterator<Item = &Settlement>,
) -> Result<Vec<i64>> {
    let settlements: Vec<&Settlement> = settlements.collect();
    let linked = linked(inner, pg, &settlements).await?;
    let new = settlements.iter().filter(|s| !linked.contains(&s.token.id));
    let next: Vec<Draft> = new.flat_map(|s| s.next.iter().cloned()).collect();
    let put = enqueue::enqueue(inner, pg, &next, false)
        .await
        .map_err(Error::answered)?;
    Ok(enqueue::new_queues(&next, &put))
}

/// The jobs among these that were done before, so that their next links exist already.
async fn linked(inner: &Inner, pg: &mut PgConnection, settlements: &[&Settlement]) -> Result<HashSet<i64>> {
    let again = again(settlements.iter().copied());
    if again.is_empty() {
        return Ok(HashSet::new());
    }
    let done: Vec<i64> = sqlx::query_scalar(inner.sql.was_done.clone())
        .bind(again)
        .fetch_all(pg)
        .await
        .doing("settle")?;
    Ok(done.into_iter().collect())
}
