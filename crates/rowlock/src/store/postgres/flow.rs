//! The flow verbs: enqueue, claim, settle, resolve. Statements are under `sql/postgres`.

use std::{collections::HashMap, time::Duration};

use jiff_sqlx::ToSqlx;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Row, SqlStr, postgres::PgArguments, query::Query};

use super::{Inner, by_key::ByKey, keys, rows};
use crate::{
    error::{Doing, Error, Result, sqlstate},
    job::{Draft, Wait, queue_no},
    key::Enqueued,
    lease::Token,
    state::State,
    store::{ClaimAsk, ClaimReply, Probe, Resolved, SettledIn, Settlement, keys::any_keyed},
};

/// How many jobs one enqueue statement carries; more are sent as several statements of one transaction.
const ENQUEUE_CHUNK: usize = 1000;

/// How long a settlement with a key waits for an open transaction that has it, before it lets another one have its turn
/// and comes again.
const KEY_WAIT: Duration = Duration::from_secs(1);

/// Inserts on the given connection. The hint, if wanted, travels with whatever commit follows.
pub async fn enqueue(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Vec<Enqueued>> {
    if fits_one_statement(drafts) {
        let ids = enqueue_chunk(inner, pg, drafts, None, hint).await?;
        return Ok(ids.into_iter().map(Enqueued::New).collect());
    }
    // All or nothing: in a transaction the caller's, begun through sqlx or by hand, else in one of our own. Only the
    // server knows of a transaction begun by hand, and tells by whether it lets us make a savepoint.
    match sqlx::raw_sql("savepoint rowlock_enqueue").execute(&mut *pg).await {
        Ok(_) => {
            let put = keys::put(inner, pg, drafts, hint).await;
            let end = match put {
                Ok(Ok(_)) => "release savepoint rowlock_enqueue",
                _ => "rollback to savepoint rowlock_enqueue; release savepoint rowlock_enqueue",
            };
            let ended = sqlx::raw_sql(end).execute(pg).await.doing("enqueue");
            // What went wrong first is what to tell.
            let put = put?;
            ended?;
            Ok(put?)
        }
        Err(e) if sqlstate(&e).as_deref() == Some("25P01") => enqueue_alone(inner, pg, drafts, hint).await,
        Err(e) => Err(e).doing("enqueue"),
    }
}

/// The same on a connection that is in no transaction.
pub async fn enqueue_alone(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    hint: bool,
) -> Result<Vec<Enqueued>> {
    if fits_one_statement(drafts) {
        let ids = enqueue_chunk(inner, pg, drafts, None, hint).await?;
        return Ok(ids.into_iter().map(Enqueued::New).collect());
    }
    let begin = pg.begin_with("begin isolation level read committed");
    let mut tx = begin.await.doing("enqueue")?;
    let put = keys::put(inner, &mut tx, drafts, hint).await?;
    match put {
        Ok(_) => tx.commit().await.doing("enqueue")?,
        Err(_) => tx.rollback().await.doing("enqueue")?,
    }
    Ok(put?)
}

fn fits_one_statement(drafts: &[Draft]) -> bool {
    let same = drafts.windows(2).all(|two| alike(&two[0], &two[1]));
    same && !any_keyed(drafts) && drafts.len() <= ENQUEUE_CHUNK
}

/// With an id for each draft that has one reserved, where there are any.
pub async fn enqueue_chunks(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    reserved: Option<&[Option<i64>]>,
    hint: bool,
) -> Result<Vec<i64>> {
    let mut ids = Vec::with_capacity(drafts.len());
    let runs = drafts.chunk_by(alike);
    for chunk in runs.flat_map(|run| run.chunks(ENQUEUE_CHUNK)) {
        let from = ids.len();
        let reserved = reserved.map(|ids| &ids[from..from + chunk.len()]);
        ids.extend(enqueue_chunk(inner, pg, chunk, reserved, hint).await?);
    }
    Ok(ids)
}

/// Whether both wait for something or neither does: those that do take another statement.
fn alike(one: &Draft, other: &Draft) -> bool {
    one.wait.is_some() == other.wait.is_some()
}

async fn enqueue_chunk(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    reserved: Option<&[Option<i64>]>,
    hint: bool,
) -> Result<Vec<i64>> {
    let Some(first) = drafts.first() else {
        return Ok(Vec::new());
    };
    let (callers, hint) = (hint, hint && !inner.heard.lately(drafts.iter().map(Draft::queue_no)));
    let channel = hint.then_some(&*inner.channel);
    let insert = match first.wait {
        None => bound(inner, inner.sql.enqueue.clone(), drafts, channel, reserved),
        Some(_) => bound(inner, inner.sql.enqueue_waiting.clone(), drafts, channel, reserved)
            .bind(column(drafts, |d| d.wait.as_ref().map(|w| w.name.as_str())))
            .bind(column(drafts, |d| d.wait.as_ref().and_then(Wait::limit_us))),
    };
    // In the caller's transaction. In a handler's the settle has seen to it, and the engine's own are not serializable.
    let by_key = match first.wait.is_some() && callers {
        true => Some(ByKey::begin(inner, pg, "enqueue").await?),
        false => None,
    };
    let rows = insert.fetch_all(&mut *pg).await.doing("enqueue")?;
    if let Some(by_key) = by_key {
        by_key.end(inner, pg, "enqueue").await?;
    }
    rows.iter().map(|r| r.try_get("id").doing("enqueue")).collect()
}

fn column<'a, D, T>(drafts: &'a [D], f: impl Fn(&'a D) -> T) -> Vec<T> {
    drafts.iter().map(f).collect()
}

/// The parameters that both enqueue statements begin with.
fn bound<'q>(
    inner: &Inner,
    sql: SqlStr,
    drafts: &'q [Draft],
    channel: Option<&'q str>,
    reserved: Option<&'q [Option<i64>]>,
) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(column(drafts, |d| d.uid))
        .bind(column(drafts, |d| d.kind.as_str()))
        .bind(column(drafts, Draft::kind_no))
        .bind(column(drafts, |d| d.version))
        .bind(column(drafts, |d| d.queue.as_str()))
        .bind(column(drafts, Draft::queue_no))
        .bind(column(drafts, |d| d.priority))
        .bind(column(drafts, |d| d.attempts_max))
        .bind(column(drafts, |d| d.payload.as_str()))
        .bind(column(drafts, |d| d.tags.as_deref()))
        .bind(column(drafts, |d| d.chain))
        .bind(column(drafts, |d| d.position))
        .bind(column(drafts, |d| d.due_at().map(ToSqlx::to_sqlx)))
        .bind(column(drafts, Draft::delay_us))
        .bind(column(drafts, |d| d.expires_at.map(ToSqlx::to_sqlx)))
        .bind(inner.now())
        .bind(column(drafts, |d| d.if_retired.as_deref()))
        .bind(channel)
        .bind(reserved)
}

/// The queues of the drafts that made a job.
pub fn new_queues(drafts: &[Draft], put: &[Enqueued]) -> Vec<i64> {
    let new = drafts.iter().zip(put).filter(|(_, put)| put.is_new());
    new.map(|(draft, _)| draft.queue_no()).collect()
}

pub async fn claim(inner: &Inner, ask: &ClaimAsk) -> Result<ClaimReply> {
    let mut lent = inner.engine.acquire().await.doing("claim")?;
    let (queues, places): (Vec<i64>, Vec<i32>) = ask.queues.iter().copied().unzip();
    let asked: i32 = places.iter().sum();
    let [queue_nos, kind_nos] = lanes(&ask.probes);
    let rows = sqlx::query(inner.sql.claim.clone())
        .bind(ask.worker.0)
        .bind(queues)
        .bind(places)
        .bind(queue_nos)
        .bind(kind_nos)
        .bind(ask.probes.iter().map(|p| p.priority).collect::<Vec<_>>())
        .bind(ask.probes.iter().map(|p| p.from.due_at.to_sqlx()).collect::<Vec<_>>())
        .bind(ask.probes.iter().map(|p| p.from.id).collect::<Vec<_>>())
        .bind(inner.now())
        .bind(ask.alone)
        .fetch_all(lent.pg())
        .await
        .doing("claim")?;
    lent.give_back();
    if rows.is_empty() {
        return Ok(ClaimReply::Dead);
    }
    let mut jobs = Vec::with_capacity(rows.len() - 1);
    for row in &rows {
        jobs.extend(rows::claimed(row, ask.worker).doing("claim")?);
    }
    debug_assert!(
        jobs.len() <= asked as usize,
        "claimed {} of {asked} asked for",
        jobs.len()
    );
    Ok(ClaimReply::Jobs(jobs))
}

pub fn lanes(probes: &[Probe]) -> [Vec<i64>; 2] {
    [
        probes.iter().map(|p| p.queue_no).collect(),
        probes.iter().map(|p| p.kind_no).collect(),
    ]
}

/// An engine batch: one commit, the lost ones leave the others standing.
pub async fn settle(inner: &Inner, batch: &[Settlement]) -> Result<(Vec<bool>, Vec<i64>)> {
    let mut lent = inner.engine.acquire().await.doing("settle")?;
    let follows = |s: &Settlement| !s.next.is_empty() || s.to == State::Case;
    if !batch.iter().any(follows) {
        let applied = write_outcomes(inner, lent.pg(), batch, None).await?;
        lent.give_back();
        return Ok((applied.into_iter().map(|w| w.applied).collect(), Vec::new()));
    }
    let mut tx = lent.pg().begin().await.doing("settle")?;
    if batch.iter().any(|s| any_keyed(&s.next)) {
        let brief = format!(
            "set local lock_timeout = {}",
            inner.timing.lock.min(KEY_WAIT).as_millis()
        );
        let brief = sqlx::raw_sql(AssertSqlSafe(brief));
        brief.execute(&mut *tx).await.doing("settle")?;
    }
    let written = write_outcomes(inner, &mut tx, batch, None).await?;
    let stand = batch.iter().zip(&written).filter(|(_, w)| w.applied).map(|(s, _)| s);
    let woken = write_what_follows(inner, &mut tx, stand).await?;
    tx.commit().await.doing("settle")?;
    lent.give_back();
    Ok((written.into_iter().map(|w| w.applied).collect(), woken))
}

/// One settlement as the last statements of a handler's transaction.
pub async fn settle_in(inner: &Inner, pg: &mut PgConnection, settlement: &Settlement) -> Result<SettledIn> {
    let marker = settlement.token.to_string();
    let written = write_outcomes(inner, pg, std::slice::from_ref(settlement), Some(&marker)).await?;
    match written.first() {
        Some(w) if !w.marked => Ok(SettledIn::NotOurs),
        Some(w) if w.applied => Ok(SettledIn::Applied {
            woken: write_what_follows(inner, pg, std::iter::once(settlement)).await?,
        }),
        _ => Ok(SettledIn::LeaseLost),
    }
}

#[derive(Clone, Copy)]
pub struct Written {
    pub applied: bool,
    pub marked: bool,
}

pub async fn write_outcomes(
    inner: &Inner,
    pg: &mut PgConnection,
    batch: &[Settlement],
    marker: Option<&str>,
) -> Result<Vec<Written>> {
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
    let mut written = HashMap::with_capacity(rows.len());
    for row in &rows {
        let key: (i64, i64) = (
            row.try_get("id").doing("settle")?,
            row.try_get("epoch").doing("settle")?,
        );
        let found = Written {
            applied: row.try_get("applied").doing("settle")?,
            marked: row.try_get("marked").doing("settle")?,
        };
        written.insert(key, found);
    }
    const LOST: Written = Written {
        applied: false,
        marked: true,
    };
    let found = |s: &Settlement| written.get(&(s.token.id, s.token.epoch)).copied().unwrap_or(LOST);
    Ok(batch.iter().map(found).collect())
}

/// Next links and compensations; returns the queues that got work.
pub async fn write_what_follows(
    inner: &Inner,
    pg: &mut PgConnection,
    settlements: impl Iterator<Item = &Settlement>,
) -> Result<Vec<i64>> {
    let mut next = Vec::new();
    let mut retired = Vec::new();
    for settlement in settlements {
        next.extend(settlement.next.iter().cloned());
        if settlement.to == State::Case {
            retired.push(settlement.token.id);
        }
    }
    let put = enqueue(inner, pg, &next, false).await.map_err(Error::answered)?;
    let mut woken = new_queues(&next, &put);
    if !retired.is_empty() {
        woken.extend(compensate(inner, pg, &retired).await?);
    }
    woken.sort_unstable();
    woken.dedup();
    Ok(woken)
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

/// Two statements on purpose: the second one's snapshot must be newer than the lock the first one waited for.
pub async fn resolve(inner: &Inner, token: Token) -> Result<Resolved> {
    let mut lent = inner.engine.acquire().await.doing("resolve")?;
    let mut tx = lent.pg().begin().await.doing("resolve")?;
    let leased: Option<i64> = sqlx::query_scalar(inner.sql.resolve_lock.clone())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *tx)
        .await
        .doing("resolve")?;
    let outcome: Option<String> = sqlx::query_scalar(inner.sql.resolve_outcome.clone())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *tx)
        .await
        .doing("resolve")?;
    tx.commit().await.doing("resolve")?;
    lent.give_back();
    Ok(match (outcome, leased) {
        (Some(word), _) => Resolved::Ended(rows::ended(&word).doing("resolve")?),
        (None, Some(_)) => Resolved::StillLeased,
        (None, None) => Resolved::Lost,
    })
}
