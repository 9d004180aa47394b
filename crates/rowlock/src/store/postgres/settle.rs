//! How attempts' ends are written: in engine batches, or as the last statement of a handler's transaction.
//!
//! Nearly all attempts end as done with nothing behind them or with plain next links. Those have lean statements of their
//! own; every other end takes `settle/attempts.sql`, which knows them all.

use std::{collections::HashSet, time::Duration};

use jiff_sqlx::ToSqlx;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, postgres::PgRow};

use super::{
    Inner,
    enqueue::{self, column},
    group,
};
use crate::{
    error::{Doing, Error, Result, sqlstate},
    job::{Draft, queue_no},
    state::{Ended, State},
    store::{
        SettledIn, Settlement, again,
        keys::{any_keyed, may_wait},
    },
};

/// How long a settlement whose next link has a key or a group waits for an open transaction that has it, before it lets another one have its turn
/// and comes again.
const KEY_WAIT: Duration = Duration::from_secs(1);

/// An engine batch: one commit, the lost ones leave the others standing.
pub async fn settle(inner: &Inner, batch: &[Settlement]) -> Result<(Vec<bool>, Vec<i64>)> {
    let mut lent = inner.engine.acquire().await.doing("settle")?;
    if batch.iter().all(|s| is_done(s) && s.next.is_empty()) && batch.iter().any(|s| s.turn.is_some()) {
        let (stand, woken) = write_turns(inner, lent.pg(), batch).await?;
        lent.end("settle").await?;
        return Ok((applied(batch, &stand), woken));
    }
    let follows = |s: &Settlement| !s.next.is_empty() || s.to == State::Case || s.turn.is_some();
    if !batch.iter().any(follows) {
        let stand = match batch.iter().all(is_done) {
            true => write_done(inner, lent.pg(), batch).await?,
            false => write_outcomes(inner, lent.pg(), batch, None).await?.stand,
        };
        lent.end("settle").await?;
        return Ok((applied(batch, &stand), Vec::new()));
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
    let written = write_outcomes(inner, &mut tx, batch, None).await?;
    let applied = applied(batch, &written.stand);
    let stand = batch
        .iter()
        .zip(&applied)
        .filter(|(_, applied)| **applied)
        .map(|(s, _)| s);
    let woken = write_what_follows(inner, &mut tx, stand).await?;
    tx.commit().await.doing("settle")?;
    lent.end("settle").await?;
    Ok((applied, woken))
}

/// One settlement as the last statements of a handler's transaction.
pub async fn settle_in(inner: &Inner, pg: &mut PgConnection, settlement: &Settlement) -> Result<SettledIn> {
    if is_done(settlement) {
        // Mostly one link or none, which travels with the settlement.
        let (link, rest) = match plain_link(settlement) {
            Some(link) => (link, &[][..]),
            None => (None, &settlement.next[..]),
        };
        let settled = write_one(inner, pg, settlement, link).await?;
        let SettledIn::Applied { mut woken } = settled else {
            return Ok(settled);
        };
        if !rest.is_empty() {
            woken = write_what_follows(inner, pg, std::iter::once(settlement)).await?;
        } else if let Some(no) = settlement.turn {
            woken.extend(group::pass(inner, pg, &[(no, Some(settlement.token.id))]).await?);
        }
        return Ok(SettledIn::Applied { woken });
    }
    let marker = settlement.token.to_string();
    let written = write_outcomes(inner, pg, std::slice::from_ref(settlement), Some(&marker)).await?;
    match (written.marked, written.stand.is_empty()) {
        (false, _) => Ok(SettledIn::NotOurs),
        (true, true) => Ok(SettledIn::LeaseLost),
        (true, false) => Ok(SettledIn::Applied {
            woken: write_what_follows(inner, pg, std::iter::once(settlement)).await?,
        }),
    }
}

/// The link that `rowlock.settle_done` can write beside the outcome, or that there is none; `None` when there are more,
/// or one with a key, a wait or a group.
#[allow(clippy::option_option, reason = "no link, and no such link, are two things")]
pub fn plain_link(settlement: &Settlement) -> Option<Option<&Draft>> {
    match settlement.next.as_slice() {
        [] => Some(None),
        [link] if !any_keyed(&settlement.next) && link.wait.is_none() && link.group.is_none() => Some(Some(link)),
        _ => None,
    }
}

/// Whether it says no more than that the attempt is done, but for a result and next links.
pub fn is_done(settlement: &Settlement) -> bool {
    settlement.ended == Ended::Done && settlement.to == State::Finished && settlement.error.is_none()
}

/// Ids and epochs of the settlements whose tokens held.
pub type Stand = HashSet<(i64, i64)>;

pub fn applied(batch: &[Settlement], stand: &Stand) -> Vec<bool> {
    let held = |s: &Settlement| stand.contains(&(s.token.id, s.token.epoch));
    batch.iter().map(held).collect()
}

fn stand(rows: &[PgRow]) -> Result<Stand> {
    let mut stand = Stand::with_capacity(rows.len());
    for row in rows {
        let id: Option<i64> = row.try_get(0).doing("settle")?;
        if let Some(id) = id {
            stand.insert((id, row.try_get(1).doing("settle")?));
        }
    }
    Ok(stand)
}

async fn write_done(inner: &Inner, pg: &mut PgConnection, batch: &[Settlement]) -> Result<Stand> {
    let rows = sqlx::query(inner.sql.settle_done.clone())
        .bind(column(batch, |s| s.token.id))
        .bind(column(batch, |s| s.token.epoch))
        .bind(column(batch, |s| s.token.worker.0))
        .bind(column(batch, |s| s.result.as_deref()))
        .bind(inner.now())
        .fetch_all(pg)
        .await
        .doing("settle")?;
    stand(&rows)
}

/// As [`write_done`], with the turns of groups; and the queues that got work.
async fn write_turns(inner: &Inner, pg: &mut PgConnection, batch: &[Settlement]) -> Result<(Stand, Vec<i64>)> {
    let rows = sqlx::query(inner.sql.settle_turns.clone())
        .bind(column(batch, |s| s.token.id))
        .bind(column(batch, |s| s.token.epoch))
        .bind(column(batch, |s| s.token.worker.0))
        .bind(column(batch, |s| s.result.as_deref()))
        .bind(inner.now())
        .bind(column(batch, |s| s.turn))
        .fetch_all(pg)
        .await
        .doing("settle")?;
    let woken: Option<Vec<i64>> = match rows.first() {
        Some(row) => row.try_get(2).doing("settle")?,
        None => None,
    };
    Ok((stand(&rows)?, woken.unwrap_or_default()))
}

async fn write_one(
    inner: &Inner,
    pg: &mut PgConnection,
    settlement: &Settlement,
    link: Option<&Draft>,
) -> Result<SettledIn> {
    let token = settlement.token;
    let query = sqlx::query(inner.sql.settle_one.clone())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(token.to_string())
        .bind(settlement.result.as_deref())
        .bind(inner.now())
        .bind(link.map(|d| d.uid))
        .bind(link.map(|d| d.kind.as_str()))
        .bind(link.map(Draft::kind_no))
        .bind(link.map(|d| d.version))
        .bind(link.map(|d| d.queue.as_str()))
        .bind(link.map(Draft::queue_no))
        .bind(link.map(|d| d.priority))
        .bind(link.map(|d| d.attempts_max))
        .bind(link.map(|d| d.payload.as_str()))
        .bind(link.and_then(|d| d.tags.as_deref()))
        .bind(link.and_then(|d| d.chain))
        .bind(link.map(|d| d.position))
        .bind(link.and_then(|d| d.due_at().map(ToSqlx::to_sqlx)))
        .bind(link.map(Draft::delay_us))
        .bind(link.and_then(|d| d.expires_at.map(ToSqlx::to_sqlx)))
        .bind(link.and_then(|d| d.if_retired.as_deref()))
        .bind(link.and_then(|d| d.trace.as_deref()));
    settled_one(query.execute(pg).await.map(drop), link)
}

/// What `rowlock.settle_done` answered.
pub fn settled_one(answer: sqlx::Result<()>, link: Option<&Draft>) -> Result<SettledIn> {
    let Err(error) = answer else {
        return Ok(SettledIn::Applied {
            woken: link.map(Draft::queue_no).into_iter().collect(),
        });
    };
    match sqlstate(&error).as_deref() {
        Some("RL001") => Ok(SettledIn::LeaseLost),
        Some("RL002") => Ok(SettledIn::NotOurs),
        _ => Err(error).doing("settle"),
    }
}

fn distinct(mut queues: Vec<i64>) -> Vec<i64> {
    queues.sort_unstable();
    queues.dedup();
    queues
}

pub struct Written {
    pub stand: Stand,
    /// Whether the transaction is still the one that the marker was set in.
    pub marked: bool,
}

pub async fn write_outcomes(
    inner: &Inner,
    pg: &mut PgConnection,
    batch: &[Settlement],
    marker: Option<&str>,
) -> Result<Written> {
    let rows = sqlx::query(inner.sql.settle.clone())
        .bind(column(batch, |s| s.token.id))
        .bind(column(batch, |s| s.token.epoch))
        .bind(column(batch, |s| s.token.worker.0))
        .bind(column(batch, |s| s.ended.as_str()))
        .bind(column(batch, |s| s.to.as_str()))
        .bind(column(batch, |s| {
            i64::try_from(s.delay.as_micros()).unwrap_or(i64::MAX)
        }))
        .bind(column(batch, |s| s.error.as_deref()))
        .bind(column(batch, |s| s.result.as_deref()))
        .bind(inner.now())
        .bind(marker)
        .fetch_all(pg)
        .await
        .doing("settle")?;
    // One row at least: it says whether the marker is there when no token is.
    let marked = rows.first().map_or(Ok(false), |row| row.try_get(2)).doing("settle")?;
    let stand = stand(&rows)?;
    Ok(Written { stand, marked })
}

/// Next links, compensations and the turns of groups; returns the queues that got work.
pub async fn write_what_follows(
    inner: &Inner,
    pg: &mut PgConnection,
    settlements: impl Iterator<Item = &Settlement>,
) -> Result<Vec<i64>> {
    let settlements: Vec<&Settlement> = settlements.collect();
    let linked = linked(inner, pg, &settlements).await?;
    let mut next = Vec::new();
    let (mut retired, mut turns) = (Vec::new(), Vec::new());
    for settlement in settlements {
        turns.extend(settlement.turn.map(|no| (no, Some(settlement.token.id))));
        if !linked.contains(&settlement.token.id) {
            next.extend(settlement.next.iter().cloned());
        }
        if settlement.to == State::Case {
            retired.push(settlement.token.id);
        }
    }
    let put = enqueue::enqueue(inner, pg, &next, false)
        .await
        .map_err(Error::answered)?;
    let mut woken = enqueue::new_queues(&next, &put);
    if !retired.is_empty() {
        woken.extend(compensate(inner, pg, &retired).await?);
    }
    woken.extend(group::pass(inner, pg, &turns).await?);
    Ok(distinct(woken))
}

/// The jobs among these that were done before, and so have their next links already.
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

pub async fn compensate(inner: &Inner, pg: &mut PgConnection, retired: &[i64]) -> Result<Vec<i64>> {
    let rows = sqlx::query(inner.sql.compensate.clone())
        .bind(retired)
        .bind(inner.now())
        .fetch_all(pg)
        .await
        .doing("compensate")?;
    let queue = |row: &sqlx::postgres::PgRow| row.try_get::<String, _>("queue").map(|q| queue_no(&q));
    rows.iter()
        .map(queue)
        .collect::<sqlx::Result<Vec<i64>>>()
        .doing("compensate")
}
