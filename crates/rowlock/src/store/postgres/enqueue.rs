//! Enqueue on PostgreSQL. Statements are under `sql/postgres/enqueue`.

use std::time::Duration;

use jiff_sqlx::ToSqlx;
use sqlx::{Connection, PgConnection, Postgres, Row, postgres::PgArguments, query::Query};
use sqlx_core::transaction::TransactionManager;

use super::{Inner, Pm, by_key::ByKey, group, keys, run::Fault};
use crate::{
    error::{Error, Result, sqlstate},
    group::Group,
    job::{Draft, Wait},
    key::Enqueued,
    store::keys::{Put, any_keyed, may_wait},
};

/// How long an enqueue in a separate commit may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How many jobs one enqueue statement inserts; more are sent as several statements of one transaction.
pub const ENQUEUE_CHUNK: usize = 1000;

/// Enqueues in a separate commit, without a notification.
pub async fn commit(inner: &Inner, drafts: &[Draft]) -> Result<Vec<Enqueued>> {
    let waited = tokio::time::timeout(inner.timing.lock, keys::turn(inner, may_wait(drafts)));
    let _turn = waited.await.map_err(|_| Error::TryAgain {
        doing: "enqueue",
        source: sqlx::Error::PoolTimedOut,
    })?;
    let put = inner.run_within(LIMIT, "enqueue", async |pg| put_alone(inner, pg, drafts, false).await);
    Ok(put.await.map_err(Error::answered)??)
}

/// Inserts on the given connection. The notification, if wanted, is sent with the commit that follows.
pub async fn enqueue(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Vec<Enqueued>> {
    let put = put(inner, pg, drafts, hint).await;
    Ok(put.map_err(|fault| fault.doing("enqueue"))??)
}

async fn put(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Put, Fault> {
    // A pooler may assign another server between two parts of a statement that is in no transaction.
    if fits_one_statement(drafts) && inner.named() {
        return put_chunk(inner, pg, drafts, hint).await;
    }
    // All or nothing: in the caller's transaction, begun through sqlx or by plain SQL, else in a separate one. Only the
    // server knows of a transaction begun by plain SQL: if there is one, it allows a savepoint.
    match sqlx::raw_sql("savepoint rowlock_enqueue").execute(&mut *pg).await {
        Ok(_) => {
            let put = keys::put(inner, pg, drafts, hint).await;
            let end = match put {
                Ok(Ok(_)) => "release savepoint rowlock_enqueue",
                _ => "rollback to savepoint rowlock_enqueue; release savepoint rowlock_enqueue",
            };
            let ended = sqlx::raw_sql(end).execute(pg).await;
            // The first error is the one to report.
            let put = put?;
            ended?;
            Ok(put)
        }
        Err(e) if sqlstate(&e).as_deref() == Some("25P01") => put_alone(inner, pg, drafts, hint).await,
        Err(e) => Err(e.into()),
    }
}

/// The same on a connection that is in no transaction.
async fn put_alone(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Put, Fault> {
    let begun = Pm::get_transaction_depth(pg) > 0;
    if fits_one_statement(drafts) && (begun || inner.named()) {
        return put_chunk(inner, pg, drafts, hint).await;
    }
    let mut tx = match begun {
        true => pg.begin().await?,
        false => pg.begin_with("begin isolation level read committed").await?,
    };
    let put = keys::put(inner, &mut tx, drafts, hint).await?;
    match put {
        Ok(_) => tx.commit().await?,
        Err(_) => tx.rollback().await?,
    }
    Ok(put)
}

async fn put_chunk(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Put, Fault> {
    let ids = enqueue_chunk(inner, pg, drafts, None, hint).await?;
    Ok(Ok(ids.into_iter().map(|id| Enqueued::New(id.into())).collect()))
}

fn fits_one_statement(drafts: &[Draft]) -> bool {
    let same = drafts.windows(2).all(|two| alike(&two[0], &two[1]));
    let grouped = drafts.first().is_some_and(|d| d.group.is_some());
    same && !grouped && !any_keyed(drafts) && drafts.len() <= ENQUEUE_CHUNK
}

/// With the reserved ids of the drafts that have one, if there are any.
pub async fn enqueue_chunks(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    reserved: Option<&[Option<i64>]>,
    hint: bool,
) -> Result<Vec<i64>, Fault> {
    let mut ids = Vec::with_capacity(drafts.len());
    let runs = drafts.chunk_by(alike);
    for chunk in runs.flat_map(|run| run.chunks(ENQUEUE_CHUNK)) {
        let from = ids.len();
        let reserved = reserved.map(|ids| &ids[from..from + chunk.len()]);
        ids.extend(enqueue_chunk(inner, pg, chunk, reserved, hint).await?);
    }
    Ok(ids)
}

/// Whether both drafts wait or neither does, and both are in a group or neither is. Jobs of groups must first join
/// their groups.
fn alike(one: &Draft, other: &Draft) -> bool {
    one.wait.is_some() == other.wait.is_some() && one.group.is_some() == other.group.is_some()
}

async fn enqueue_chunk(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    reserved: Option<&[Option<i64>]>,
    hint: bool,
) -> Result<Vec<i64>, Fault> {
    let Some(first) = drafts.first() else {
        return Ok(Vec::new());
    };
    let (callers, hint) = (hint, hint && !inner.heard.lately(drafts.iter().map(Draft::queue_no)));
    let channel = hint.then_some(&*inner.channel);
    // Only in the caller's transaction: in a handler's transaction, the settle has set this, and the engine's own
    // transactions are not serializable.
    let by_key = match (first.wait.is_some() || first.group.is_some()) && callers {
        true => Some(ByKey::begin(inner, pg).await?),
        false => None,
    };
    let (places, ids);
    let (mut reserved, mut heads) = (reserved, None);
    if first.group.is_some() {
        places = group::enter(inner, pg, drafts, reserved).await?;
        ids = places.ids.iter().copied().map(Some).collect::<Vec<_>>();
        (reserved, heads) = (Some(&ids[..]), Some(&places.heads[..]));
    }
    let insert = inner
        .query(&inner.sql.enqueue)
        .bind(inner.now())
        .bind(channel)
        .bind(reserved);
    let insert = bind_drafts(insert, drafts).bind(heads);
    let rows = insert.fetch_all(&mut *pg).await?;
    if let Some(by_key) = by_key {
        by_key.end(inner, pg).await?;
    }
    Ok(rows.iter().map(|r| r.try_get("id")).collect::<sqlx::Result<_>>()?)
}

pub fn column<'a, D, T>(drafts: &'a [D], f: impl Fn(&'a D) -> T) -> Vec<T> {
    drafts.iter().map(f).collect()
}

/// The columns of the drafts, in the order of `enqueue/jobs.sql`; null for a column that no draft has.
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

/// The queues of the drafts that created a job.
pub fn new_queues(drafts: &[Draft], put: &[Enqueued]) -> Vec<i64> {
    let new = drafts.iter().zip(put).filter(|(_, put)| put.is_new());
    new.map(|(draft, _)| draft.queue_no()).collect()
}
