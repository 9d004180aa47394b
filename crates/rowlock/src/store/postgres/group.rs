//! Groups on PostgreSQL: which job has the turn, and which jobs wait.
//!
//! An enqueue locks its group's row with `for key share`. This lock only prevents the removal of the row. A head that
//! ends meanwhile passes the turn on under `for no key update`, and two enqueues do not wait for each other. Only the
//! removal of the row excludes everyone, and only a group without jobs is removed.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::{Connection, PgConnection};

use super::Inner;
use crate::{
    error::{Doing, Error, Result},
    group::Group,
    job::Draft,
};

/// How often a group may be removed between two statements before the caller is asked to try again.
const ROUNDS_MAX: usize = 20;

pub const SWEEPING: &str = "sweep groups";

/// The places of jobs in groups.
pub struct Places {
    pub ids: Vec<i64>,
    /// Whether the job has the turn.
    pub heads: Vec<bool>,
}

/// Assigns each of these jobs its id and decides which have the turn. The jobs join their groups when they are
/// inserted, in the same transaction.
pub async fn enter(
    inner: &Inner,
    pg: &mut PgConnection,
    drafts: &[Draft],
    reserved: Option<&[Option<i64>]>,
) -> Result<Places> {
    let nos: Vec<i64> = drafts.iter().filter_map(|d| d.group.as_ref()).map(Group::no).collect();
    let reserved = reserved.map_or_else(|| vec![None; nos.len()], <[_]>::to_vec);
    let entered = share(inner, pg, &nos, &reserved).await?;
    let ids: Vec<i64> = entered.iter().map(|(id, ..)| *id).collect();
    // Only the first job of each group may become its head.
    let mut first = BTreeMap::new();
    for (no, (id, known, vacant)) in nos.iter().zip(entered) {
        first.entry(*no).or_insert((id, known, vacant));
    }
    let heads = heads(inner, pg, first.into_iter().collect()).await?;
    let heads = nos.iter().zip(&ids).map(|(no, id)| heads.get(no) == Some(id));
    Ok(Places {
        heads: heads.collect(),
        ids,
    })
}

/// A group, the first job to join it, whether the group has a row, and whether it is vacant.
type Entry = (i64, (i64, bool, bool));

/// Which of these jobs become heads, by group. When this returns, each group's row is locked or created.
async fn heads(inner: &Inner, pg: &mut PgConnection, mut open: Vec<Entry>) -> Result<HashMap<i64, i64>> {
    let mut heads = HashMap::new();
    for _ in 0..ROUNDS_MAX {
        let (known, missing): (Vec<Entry>, Vec<Entry>) = open.into_iter().partition(|(_, (_, known, _))| *known);
        let vacant = known.into_iter().filter(|(_, (_, _, vacant))| *vacant);
        heads.extend(take_over(inner, pg, vacant.map(|(no, (id, ..))| (no, id)).collect()).await?);
        if missing.is_empty() {
            return Ok(heads);
        }
        let missing: Vec<(i64, i64)> = missing.into_iter().map(|(no, (id, ..))| (no, id)).collect();
        let begun = begin(inner, pg, &missing).await?;
        let (begun, left): (Vec<_>, Vec<_>) = missing.into_iter().partition(|(no, _)| begun.contains(no));
        heads.extend(begun);
        let (nos, ids): (Vec<i64>, Vec<Option<i64>>) = left.into_iter().map(|(no, id)| (no, Some(id))).unzip();
        let entered = share(inner, pg, &nos, &ids).await?;
        open = nos.into_iter().zip(entered).collect();
    }
    Err(Error::TryAgain {
        doing: "enqueue",
        source: sqlx::Error::RowNotFound,
    })
}

/// An id for each job, whether its group has a row, and whether the group is vacant. An existing row is locked.
async fn share(
    inner: &Inner,
    pg: &mut PgConnection,
    nos: &[i64],
    ids: &[Option<i64>],
) -> Result<Vec<(i64, bool, bool)>> {
    if nos.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query_as(inner.sql.group_share.clone())
        .persistent(inner.named())
        .bind(nos)
        .bind(ids)
        .fetch_all(pg)
        .await
        .doing("enqueue")
}

/// Creates the rows of groups that have none; returns the groups whose row it created.
async fn begin(inner: &Inner, pg: &mut PgConnection, missing: &[(i64, i64)]) -> Result<HashSet<i64>> {
    let (nos, ids): (Vec<i64>, Vec<i64>) = missing.iter().copied().unzip();
    let begun: Vec<i64> = sqlx::query_scalar(inner.sql.group_take.clone())
        .persistent(inner.named())
        .bind(nos)
        .bind(ids)
        .fetch_all(pg)
        .await
        .doing("enqueue")?;
    Ok(begun.into_iter().collect())
}

/// Takes the turn of vacant groups; returns the groups whose turn it took. If a row is no longer vacant once it is
/// locked, the lock is released again: its new head must not wait for this caller's transaction.
async fn take_over(inner: &Inner, pg: &mut PgConnection, mut vacant: Vec<(i64, i64)>) -> Result<Vec<(i64, i64)>> {
    while !vacant.is_empty() {
        mark(pg, "savepoint rowlock_turn").await?;
        let (nos, ids): (Vec<i64>, Vec<i64>) = vacant.iter().copied().unzip();
        let taken: Vec<i64> = sqlx::query_scalar(inner.sql.group_take_over.clone())
            .persistent(inner.named())
            .bind(nos)
            .bind(ids)
            .fetch_all(&mut *pg)
            .await
            .doing("enqueue")?;
        if taken.len() == vacant.len() {
            mark(pg, "release savepoint rowlock_turn").await?;
            return Ok(vacant);
        }
        mark(pg, "rollback to savepoint rowlock_turn; release savepoint rowlock_turn").await?;
        vacant.retain(|(no, _)| taken.contains(no));
    }
    Ok(Vec::new())
}

async fn mark(pg: &mut PgConnection, savepoint: &'static str) -> Result<()> {
    sqlx::raw_sql(savepoint).execute(pg).await.doing("enqueue").map(drop)
}

/// Passes turns on, by group and the head that ended; returns the queues with new work.
pub async fn pass(inner: &Inner, pg: &mut PgConnection, turns: &[(i64, Option<i64>)]) -> Result<Vec<i64>> {
    if turns.is_empty() {
        return Ok(Vec::new());
    }
    let (nos, heads): (Vec<i64>, Vec<Option<i64>>) = turns.iter().copied().unzip();
    sqlx::query_scalar(inner.sql.group_pass.clone())
        .persistent(inner.named())
        .bind(nos)
        .bind(heads)
        .bind(inner.now())
        .fetch_one(pg)
        .await
        .doing("pass a group turn on")
}

/// One pass over all vacant groups, page by page, each page in a separate commit. Returns the queues with new work.
pub async fn sweep(inner: &Inner, max: i32) -> Result<Vec<i64>> {
    let mut lent = inner.engine.acquire().await.doing(SWEEPING)?;
    let (mut woken, mut from) = (Vec::new(), i64::MIN);
    loop {
        let mut tx = lent.pg().begin().await.doing(SWEEPING)?;
        if from == i64::MIN {
            withdraw(inner, &mut tx, max).await?;
        }
        let vacant: Vec<i64> = sqlx::query_scalar(inner.sql.group_vacant.clone())
            .persistent(inner.named())
            .bind(max)
            .bind(from)
            .fetch_all(&mut *tx)
            .await
            .doing(SWEEPING)?;
        // Most vacant groups have no jobs, and so no turn to pass on.
        let gone = drop_empty(inner, &mut tx, &vacant).await?;
        let left = vacant.iter().filter(|no| !gone.contains(no));
        let turns: Vec<(i64, Option<i64>)> = left.map(|no| (*no, None)).collect();
        woken.extend(pass(inner, &mut tx, &turns).await?);
        tx.commit().await.doing(SWEEPING)?;
        match vacant.last() {
            Some(last) if vacant.len() >= usize::try_from(max).unwrap_or(1) => from = *last,
            _ => break,
        }
    }
    lent.end(SWEEPING).await?;
    Ok(woken)
}

/// Removes groups without jobs, once no job can join them any more; returns which.
async fn drop_empty(inner: &Inner, tx: &mut PgConnection, vacant: &[i64]) -> Result<HashSet<i64>> {
    let locked: Vec<i64> = sqlx::query_scalar(inner.sql.group_lock_empty.clone())
        .persistent(inner.named())
        .bind(vacant)
        .fetch_all(&mut *tx)
        .await
        .doing(SWEEPING)?;
    if locked.is_empty() {
        return Ok(HashSet::new());
    }
    let gone: Vec<i64> = sqlx::query_scalar(inner.sql.group_drop.clone())
        .persistent(inner.named())
        .bind(locked)
        .fetch_all(tx)
        .await
        .doing(SWEEPING)?;
    Ok(gone.into_iter().collect())
}

/// Takes the heads of paused groups out of ready.
async fn withdraw(inner: &Inner, pg: &mut PgConnection, max: i32) -> Result<()> {
    sqlx::query(inner.sql.group_withdraw.clone())
        .persistent(inner.named())
        .bind(max)
        .bind(inner.now())
        .execute(pg)
        .await
        .doing("pause")
        .map(drop)
}
