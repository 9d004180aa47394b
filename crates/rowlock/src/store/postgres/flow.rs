//! The flow verbs: enqueue, claim, resolve; settling is beside it. Statements are under `sql/postgres`.

use std::collections::HashMap;

use jiff_sqlx::ToSqlx;
use sqlx::{Connection, PgConnection, Postgres, Row, postgres::PgArguments, query::Query};
use sqlx_core::transaction::TransactionManager;

use super::{Inner, Pm, by_key::ByKey, group, keys, rows};
use crate::{
    error::{Doing, Result, sqlstate},
    group::Group,
    job::{Draft, Wait},
    key::Enqueued,
    lease::Token,
    store::{ClaimAsk, ClaimReply, Resolved, Stretch, keys::any_keyed},
};

/// How many jobs one enqueue statement carries; more are sent as several statements of one transaction.
pub const ENQUEUE_CHUNK: usize = 1000;

/// Inserts on the given connection. The hint, if wanted, travels with whatever commit follows.
pub async fn enqueue(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Vec<Enqueued>> {
    // A pooler would lend another server between two parts of a statement that is in no transaction.
    if fits_one_statement(drafts) && inner.named() {
        let ids = enqueue_chunk(inner, pg, drafts, None, hint).await?;
        return Ok(ids.into_iter().map(|id| Enqueued::New(id.into())).collect());
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
    let begun = Pm::get_transaction_depth(pg) > 0;
    if fits_one_statement(drafts) && (begun || inner.named()) {
        let ids = enqueue_chunk(inner, pg, drafts, None, hint).await?;
        return Ok(ids.into_iter().map(|id| Enqueued::New(id.into())).collect());
    }
    let begin = match begun {
        true => pg.begin().await,
        false => pg.begin_with("begin isolation level read committed").await,
    };
    let mut tx = begin.doing("enqueue")?;
    let put = keys::put(inner, &mut tx, drafts, hint).await?;
    match put {
        Ok(_) => tx.commit().await.doing("enqueue")?,
        Err(_) => tx.rollback().await.doing("enqueue")?,
    }
    Ok(put?)
}

fn fits_one_statement(drafts: &[Draft]) -> bool {
    let same = drafts.windows(2).all(|two| alike(&two[0], &two[1]));
    let grouped = drafts.first().is_some_and(|d| d.group.is_some());
    same && !grouped && !any_keyed(drafts) && drafts.len() <= ENQUEUE_CHUNK
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

/// Whether both wait for something or neither does, and both are in a group or neither is: groups have to be entered first.
fn alike(one: &Draft, other: &Draft) -> bool {
    one.wait.is_some() == other.wait.is_some() && one.group.is_some() == other.group.is_some()
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
    // In the caller's transaction. In a handler's the settle has seen to it, and the engine's own are not serializable.
    let by_key = match (first.wait.is_some() || first.group.is_some()) && callers {
        true => Some(ByKey::begin(inner, pg, "enqueue").await?),
        false => None,
    };
    let (places, ids);
    let (mut reserved, mut heads) = (reserved, None);
    if first.group.is_some() {
        places = group::enter(inner, pg, drafts, reserved).await?;
        ids = places.ids.iter().copied().map(Some).collect::<Vec<_>>();
        (reserved, heads) = (Some(&ids[..]), Some(&places.heads[..]));
    }
    let insert = sqlx::query(inner.sql.enqueue.clone())
        .persistent(inner.named())
        .bind(inner.now())
        .bind(channel)
        .bind(reserved);
    let insert = bind_drafts(insert, drafts).bind(heads);
    let rows = insert.fetch_all(&mut *pg).await.doing("enqueue")?;
    if let Some(by_key) = by_key {
        by_key.end(inner, pg, "enqueue").await?;
    }
    rows.iter().map(|r| r.try_get("id").doing("enqueue")).collect()
}

pub fn column<'a, D, T>(drafts: &'a [D], f: impl Fn(&'a D) -> T) -> Vec<T> {
    drafts.iter().map(f).collect()
}

/// The columns of the drafts, in the order in which `enqueue/jobs.sql` takes them; nulls for what none of them has.
fn bind_drafts<'q>(query: Query<'q, Postgres, PgArguments>, drafts: &'q [Draft]) -> Query<'q, Postgres, PgArguments> {
    let waits = drafts.iter().any(|d| d.wait.is_some());
    let grouped = drafts.iter().any(|d| d.group.is_some());
    query
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
        .bind(column(drafts, |d| d.if_retired.as_deref()))
        .bind(column(drafts, |d| d.trace.as_deref()))
        .bind(waits.then(|| column(drafts, |d| d.wait.as_ref().map(|w| w.name.as_str()))))
        .bind(waits.then(|| column(drafts, |d| d.wait.as_ref().and_then(Wait::limit_us))))
        .bind(grouped.then(|| column(drafts, |d| d.group.as_ref().map(|g| g.name.as_str()))))
        .bind(grouped.then(|| column(drafts, |d| d.group.as_ref().map(|g| g.stops))))
        .bind(grouped.then(|| column(drafts, |d| d.group.as_ref().map(Group::no))))
}

/// The queues of the drafts that made a job.
pub fn new_queues(drafts: &[Draft], put: &[Enqueued]) -> Vec<i64> {
    let new = drafts.iter().zip(put).filter(|(_, put)| put.is_new());
    new.map(|(draft, _)| draft.queue_no()).collect()
}

pub async fn claim(inner: &Inner, ask: &ClaimAsk) -> Result<ClaimReply> {
    let mut lent = inner.engine.acquire().await.doing("claim")?;
    if !inner.hosts.is_home(ask.worker, lent.timeline()) {
        lent.end("claim").await?;
        return Ok(ClaimReply::Moved);
    }
    let reply = claim_on(inner, lent.pg(), ask).await?;
    lent.end("claim").await?;
    Ok(reply)
}

/// The same on this connection.
pub async fn claim_on(inner: &Inner, pg: &mut PgConnection, ask: &ClaimAsk) -> Result<ClaimReply> {
    let asked: i32 = ask.queues.iter().map(|(_, places)| places).sum();
    let (stretches, ends) = by_queue(ask);
    let column = |f: fn(&Stretch) -> i64| stretches.iter().map(|p| f(p)).collect::<Vec<_>>();
    let text = match ask.bound.is_empty() {
        true => &inner.sql.claim,
        false => &inner.sql.claim_bound,
    };
    let mut query = sqlx::query(text.clone())
        .persistent(inner.named())
        .bind(ask.worker.0)
        .bind(ends.iter().map(|(first, _)| *first).collect::<Vec<_>>())
        .bind(ask.queues.iter().map(|(_, places)| *places).collect::<Vec<_>>())
        .bind(column(|p| p.queue_no))
        .bind(column(|p| p.kind_no))
        .bind(stretches.iter().map(|p| p.priority).collect::<Vec<_>>())
        .bind(stretches.iter().map(|p| p.from.due_at.to_sqlx()).collect::<Vec<_>>())
        .bind(column(|p| p.from.id))
        .bind(inner.now())
        .bind(ask.alone)
        .bind(ends.iter().map(|(_, last)| *last).collect::<Vec<_>>());
    if !ask.bound.is_empty() {
        let (kinds, names): (Vec<i64>, Vec<&str>) = ask.bound.iter().map(|(kind, name)| (*kind, name.as_str())).unzip();
        query = query.bind(kinds).bind(names);
    }
    let rows = query.fetch_all(pg).await.doing("claim")?;
    let Some(last) = rows.last() else {
        return Ok(ClaimReply::Dead);
    };
    let told = rows::claimed_at(last).doing("claim")?;
    let now = told.ok_or_else(|| sqlx::Error::RowNotFound).doing("claim")?;
    let mut jobs = Vec::with_capacity(rows.len() - 1);
    for row in &rows {
        jobs.extend(rows::claimed(row, ask.worker, ask.alone, now).doing("claim")?);
    }
    debug_assert!(
        jobs.len() <= asked as usize,
        "claimed {} of {asked} asked for",
        jobs.len()
    );
    Ok(ClaimReply::Jobs(jobs))
}

/// The stretches with each queue's together, in their order, and the positions of each queue's first and last, counted
/// from one: a queue must not walk the lanes of all the others.
fn by_queue(ask: &ClaimAsk) -> (Vec<&Stretch>, Vec<(i32, i32)>) {
    let mut lanes: HashMap<i64, Vec<&Stretch>> = HashMap::with_capacity(ask.queues.len());
    for stretch in &ask.stretches {
        lanes.entry(stretch.queue_no).or_default().push(stretch);
    }
    let mut stretches = Vec::with_capacity(ask.stretches.len());
    let mut ends = Vec::with_capacity(ask.queues.len());
    for (queue_no, _) in &ask.queues {
        let first = stretches.len() + 1;
        stretches.extend(lanes.remove(queue_no).unwrap_or_default());
        ends.push((first as i32, stretches.len() as i32));
    }
    (stretches, ends)
}

pub fn lanes(stretches: &[Stretch]) -> [Vec<i64>; 2] {
    [
        stretches.iter().map(|p| p.queue_no).collect(),
        stretches.iter().map(|p| p.kind_no).collect(),
    ]
}

/// Two statements on purpose: the second one's snapshot must be newer than the lock the first one waited for.
pub async fn resolve(inner: &Inner, token: Token) -> Result<Resolved> {
    let mut lent = inner.engine.acquire().await.doing("resolve")?;
    let mut tx = lent.pg().begin().await.doing("resolve")?;
    let leased: Option<i64> = sqlx::query_scalar(inner.sql.resolve_lock.clone())
        .persistent(inner.named())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *tx)
        .await
        .doing("resolve")?;
    let outcome: Option<String> = sqlx::query_scalar(inner.sql.resolve_outcome.clone())
        .persistent(inner.named())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *tx)
        .await
        .doing("resolve")?;
    tx.commit().await.doing("resolve")?;
    lent.end("resolve").await?;
    Ok(match (outcome, leased) {
        (Some(word), _) => Resolved::Ended(rows::ended(&word).doing("resolve")?),
        (None, Some(_)) => Resolved::StillLeased,
        (None, None) => Resolved::Lost,
    })
}
