//! Removes what the retention no longer keeps: history, cases, keys, ledger entries, completions, locks of dead
//! workers. Each turn at the write lock is short; between two turns, other writers get theirs.

use sqlx::{Row, SqliteConnection};

use super::{SqliteStore, group, micros, now_us, rows, sql};
use crate::{
    error::Result,
    retention::Retention,
    store::{Swept, group::STUCK},
};

/// Rows read or removed in one turn, and turns in one round for everything except keys.
const PAGE: i64 = 1000;
const ROUNDS: usize = 50;

/// The position of a scan over keys of one hold.
#[derive(Clone)]
struct Walk {
    hold: &'static str,
    now: i64,
    /// Only keys created before this; for keys held by policy, the policy's time.
    before: i64,
    policy: Option<i64>,
    from: (i64, String),
}

/// The statements of one table of keys.
#[derive(Clone, Copy)]
struct Table {
    page: &'static str,
    sweep: &'static str,
    holds: &'static [&'static str],
}

const KEYS: Table = Table {
    page: sql::KEYS_PAGE,
    sweep: sql::SWEEP_KEYS,
    holds: &["open", "period", "policy"],
};

const LEDGER: Table = Table {
    page: sql::LEDGER_PAGE,
    sweep: sql::SWEEP_LEDGER,
    holds: &["period", "policy"],
};

pub async fn maintain(store: &SqliteStore, retention: &Retention) -> Result<Swept> {
    let now = now_us(&store.inner.clock);
    let ago = |time| now.saturating_sub(micros(time));
    let history = ago(retention.history);
    let mut swept = Swept::default();
    let mut from = 0;
    for _ in 0..ROUNDS {
        let turn = store.write("maintain", (history, from), |db, _, (before, from)| {
            Box::pin(prune(db, *before, *from))
        });
        let (removed, next) = turn.await?;
        swept.jobs += removed;
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    for _ in 0..ROUNDS {
        let Some(kept) = retention.cases else { break };
        let turn = store.write("sweep cases", ago(kept), |db, now, before| {
            Box::pin(cases(db, now, *before))
        });
        let removed = turn.await?;
        swept.cases += removed;
        if removed < PAGE.unsigned_abs() {
            break;
        }
    }
    let policy = retention.keys.map(ago);
    swept.keys = walk(store, KEYS, now, policy).await?;
    swept.ledger = walk(store, LEDGER, now, policy).await?;
    if let Some(before) = policy {
        aged(store, "sweep completions", sql::SWEEP_COMPLETIONS, before).await?;
    }
    aged(
        store,
        "sweep breaker log",
        sql::SWEEP_BREAKER_LOG,
        ago(retention.history),
    )
    .await?;
    if let Some(kept) = retention.audit {
        aged(store, "sweep the audit", sql::SWEEP_AUDIT, ago(kept)).await?;
    }
    let turn = store.write("repair groups", (), |db, now, ()| Box::pin(mend_groups(db, now)));
    let mended = turn.await?;
    if mended > 0 {
        tracing::warn!(groups = mended, "{STUCK}");
    }
    for _ in 0..ROUNDS {
        let turn = store.write("sweep body locks", (), |db, _, ()| Box::pin(body_locks(db)));
        if turn.await? < PAGE.unsigned_abs() {
            break;
        }
    }
    Ok(swept)
}

/// Removes one page of history that ended before the given time, and the bodies that have no history left. Returns the
/// number of these bodies, and where the next page begins, if there may be one.
async fn prune(db: &mut SqliteConnection, before: i64, from: i64) -> sqlx::Result<(u64, Option<i64>)> {
    let page = sqlx::query(sql::PRUNE_PAGE)
        .bind(before)
        .bind(from)
        .bind(PAGE)
        .fetch_one(&mut *db)
        .await?;
    let (last, seen, old): (i64, i64, i64) = (page.try_get("last")?, page.try_get("seen")?, page.try_get("old")?);
    if old == 0 {
        return Ok((0, None));
    }
    let mut ids: Vec<i64> = sqlx::query_scalar(sql::PRUNE)
        .bind(before)
        .bind(from)
        .bind(last)
        .fetch_all(&mut *db)
        .await?;
    ids.sort_unstable();
    ids.dedup();
    let ids = rows::array(&ids)?;
    let bodies = sqlx::query(sql::PRUNE_BODY).bind(&ids).execute(&mut *db).await?;
    sqlx::query(sql::PRUNE_EFFECTS).bind(&ids).execute(&mut *db).await?;
    Ok((bodies.rows_affected(), (seen == PAGE).then_some(last)))
}

/// Passes the turn on in groups whose head is finished.
async fn mend_groups(db: &mut SqliteConnection, now: i64) -> sqlx::Result<usize> {
    let stuck: Vec<(i64, Option<i64>)> = sqlx::query_as(sql::GROUP_MEND).bind(PAGE).fetch_all(&mut *db).await?;
    group::pass(db, now, &stuck).await?;
    Ok(stuck.len())
}

async fn cases(db: &mut SqliteConnection, now: i64, before: i64) -> sqlx::Result<u64> {
    let removed: Vec<i64> = sqlx::query_scalar(sql::SWEEP_CASES)
        .bind(before)
        .bind(PAGE)
        .fetch_all(&mut *db)
        .await?;
    if !removed.is_empty() {
        let ids = rows::array(&removed)?;
        let bodies = sqlx::query_as(sql::SWEEP_CASE_BODIES).bind(&ids);
        let bodies: Vec<(i64, Option<i64>)> = bodies.fetch_all(&mut *db).await?;
        sqlx::query(sql::PRUNE_EFFECTS).bind(&ids).execute(&mut *db).await?;
        // A group that a case has stopped goes on when the case is removed.
        let turns: Vec<_> = bodies
            .into_iter()
            .filter_map(|(id, no)| Some((no?, Some(id))))
            .collect();
        group::pass(&mut *db, now, &turns).await?;
    }
    sqlx::query(sql::SWEEP_CASE_ERRORS).bind(before).execute(db).await?;
    Ok(removed.len() as u64)
}

/// Reads a table of keys page by page, so that no turn reads more than one page of keys that must stay.
async fn walk(store: &SqliteStore, table: Table, now: i64, policy: Option<i64>) -> Result<u64> {
    let mut removed = 0;
    for hold in table.holds {
        let before = if *hold == "policy" { policy } else { Some(now) };
        let Some(before) = before else { continue };
        let mut walk = Walk {
            hold,
            now,
            before,
            policy,
            from: (0, String::new()),
        };
        loop {
            let turn = store.write("sweep keys", (table, walk.clone()), |db, _, (table, walk)| {
                Box::pin(page(db, *table, walk))
            });
            let (gone, next) = turn.await?;
            removed += gone;
            match next {
                Some(next) => walk.from = next,
                None => break,
            }
        }
    }
    Ok(removed)
}

/// How many keys were removed, and where the next page begins, if there is one.
async fn page(db: &mut SqliteConnection, table: Table, walk: &Walk) -> sqlx::Result<(u64, Option<(i64, String)>)> {
    let found: Vec<(String, i64)> = sqlx::query_as(table.page)
        .bind(walk.hold)
        .bind(walk.before)
        .bind(walk.from.0)
        .bind(&walk.from.1)
        .bind(PAGE)
        .fetch_all(&mut *db)
        .await?;
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    let swept = sqlx::query(table.sweep)
        .bind(rows::array(&keys)?)
        .bind(walk.now)
        .bind(walk.policy)
        .execute(&mut *db)
        .await?;
    let full = found.len() as i64 == PAGE;
    let last = found.into_iter().next_back().filter(|_| full);
    Ok((swept.rows_affected(), last.map(|(key, made_at)| (made_at, key))))
}

/// Removes rows older than this time.
async fn aged(store: &SqliteStore, doing: &'static str, sweep: &'static str, before: i64) -> Result<()> {
    for _ in 0..ROUNDS {
        let turn = store.write(doing, (sweep, before), |db, _, (sweep, before)| {
            Box::pin(async move {
                let swept = sqlx::query(*sweep).bind(before).bind(PAGE);
                Ok(swept.execute(db).await?.rows_affected())
            })
        });
        if turn.await? < PAGE.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

async fn body_locks(db: &mut SqliteConnection) -> sqlx::Result<u64> {
    let swept = sqlx::query(sql::SWEEP_BODY_LOCKS).bind(PAGE);
    Ok(swept.execute(db).await?.rows_affected())
}
