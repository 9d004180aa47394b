//! What is over and goes: history, cases, keys, ledger entries, completions, locks of the dead. Small statements, each a
//! commit of its own, and none that waits for a row that somebody is about to take.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{PgConnection, Row, SqlStr, postgres::PgRow};

use super::{Inner, conns::Lent, recover, rows};
use crate::{
    error::{Doing, Result},
    retention::Retention,
    store::{Swept, group::STUCK},
};

/// Rows removed in one commit, and commits in one go.
const PRUNE_MAX: i64 = 5000;
const PRUNE_ROUNDS: usize = 100;

/// Keys looked at in one statement.
const PAGE: i64 = 1000;

pub async fn maintain(inner: &Inner, retention: &Retention) -> Result<Swept> {
    let mut lent = inner.engine.acquire().await.doing("maintain")?;
    let now = match inner.clock.now() {
        Some(now) => now,
        None => {
            let now: jiff_sqlx::Timestamp = sqlx::query_scalar("select clock_timestamp()")
                .fetch_one(lent.pg())
                .await
                .doing("maintain")?;
            now.to_jiff()
        }
    };
    // Nothing is older than the epoch, and not every database can write what is.
    let ago = |time| {
        now.checked_sub(time)
            .map_or(Timestamp::UNIX_EPOCH, |at| at.max(Timestamp::UNIX_EPOCH))
    };
    recover::make_partitions(inner, lent.pg()).await?;
    lent.commit_so_far("make partitions").await?;
    let mut swept = Swept {
        jobs: history(inner, &mut lent, ago(retention.history)).await?,
        ..Swept::default()
    };
    if let Some(kept) = retention.cases {
        swept.cases = cases(inner, &mut lent, ago(kept)).await?;
    }
    let keys_before = retention.keys.map(ago);
    swept.keys = keys(inner, &mut lent, now, keys_before).await?;
    swept.ledger = ledger(inner, &mut lent, now, keys_before).await?;
    if let Some(before) = keys_before {
        aged(&mut lent, &inner.sql.sweep_completions, before, "sweep completions").await?;
    }
    let history_before = ago(retention.history);
    aged(
        &mut lent,
        &inner.sql.sweep_breaker_log,
        history_before,
        "sweep breaker log",
    )
    .await?;
    if let Some(kept) = retention.audit {
        audit(inner, &mut lent, ago(kept)).await?;
    }
    body_locks(inner, &mut lent).await?;
    let mend = sqlx::query(inner.sql.group_mend.clone()).bind(PAGE);
    let mended = mend.execute(lent.pg()).await.doing("repair groups")?.rows_affected();
    if mended > 0 {
        tracing::warn!(groups = mended, "{STUCK}");
    }
    lent.end("maintain").await?;
    Ok(swept)
}

/// How many bodies went.
async fn history(inner: &Inner, lent: &mut Lent, before: Timestamp) -> Result<u64> {
    sqlx::query(inner.sql.drop_history.clone())
        .bind(before.to_sqlx())
        .execute(lent.pg())
        .await
        .doing("drop history")?;
    lent.commit_so_far("drop history").await?;
    let mut removed = 0;
    for _ in 0..PRUNE_ROUNDS {
        let pruned: i64 = sqlx::query_scalar(inner.sql.prune.clone())
            .bind(before.to_sqlx())
            .bind(PRUNE_MAX)
            .fetch_one(lent.pg())
            .await
            .doing("prune")?;
        lent.commit_so_far("prune").await?;
        removed += pruned.unsigned_abs();
        if pruned < PRUNE_MAX {
            break;
        }
    }
    Ok(removed)
}

async fn cases(inner: &Inner, lent: &mut Lent, before: Timestamp) -> Result<u64> {
    let mut removed = 0;
    for _ in 0..PRUNE_ROUNDS {
        let round: i64 = sqlx::query_scalar(inner.sql.sweep_cases.clone())
            .bind(before.to_sqlx())
            .bind(PAGE)
            .fetch_one(lent.pg())
            .await
            .doing("sweep cases")?;
        lent.commit_so_far("sweep cases").await?;
        removed += round.unsigned_abs();
        if round < PAGE {
            break;
        }
    }
    let errors = sqlx::query(inner.sql.sweep_case_errors.clone()).bind(before.to_sqlx());
    errors.execute(lent.pg()).await.doing("sweep cases")?;
    lent.commit_so_far("sweep cases").await?;
    Ok(removed)
}

/// Removes what is older than this.
async fn aged(lent: &mut Lent, sweep: &SqlStr, before: Timestamp, doing: &'static str) -> Result<()> {
    for _ in 0..PRUNE_ROUNDS {
        let swept = sqlx::query(sweep.clone())
            .bind(before.to_sqlx())
            .bind(PRUNE_MAX)
            .execute(lent.pg())
            .await
            .doing(doing)?;
        lent.commit_so_far(doing).await?;
        if swept.rows_affected() < PRUNE_MAX.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

async fn audit(inner: &Inner, lent: &mut Lent, before: Timestamp) -> Result<()> {
    for _ in 0..PRUNE_ROUNDS {
        let removed: i64 = sqlx::query_scalar(inner.sql.sweep_audit.clone())
            .bind(before.to_sqlx())
            .bind(PAGE)
            .fetch_one(lent.pg())
            .await
            .doing("sweep the audit")?;
        lent.commit_so_far("sweep the audit").await?;
        if removed < PAGE {
            break;
        }
    }
    Ok(())
}

async fn body_locks(inner: &Inner, lent: &mut Lent) -> Result<()> {
    for _ in 0..PRUNE_ROUNDS {
        let swept = sqlx::query(inner.sql.sweep_body_locks.clone())
            .bind(PRUNE_MAX)
            .execute(lent.pg())
            .await
            .doing("sweep body locks")?;
        lent.commit_so_far("sweep body locks").await?;
        if swept.rows_affected() < PRUNE_MAX.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

/// Walks the enqueue keys page by page, so that no statement looks at more than one page of keys that must stay.
async fn keys(inner: &Inner, lent: &mut Lent, now: Timestamp, policy: Option<Timestamp>) -> Result<u64> {
    let mut removed = 0;
    for (hold, before) in [("open", Some(now)), ("period", Some(now)), ("policy", policy)] {
        let Some(before) = before else { continue };
        let mut page = Page::start();
        while page.next(lent.pg(), inner.sql.keys_page.clone(), hold, before).await? {
            let ids: Vec<i64> = page
                .rows
                .iter()
                .map(|r| r.try_get("id"))
                .collect::<sqlx::Result<_>>()
                .doing("sweep keys")?;
            let swept = sqlx::query(inner.sql.sweep_keys.clone())
                .bind(&page.keys)
                .bind(ids)
                .bind(now.to_sqlx())
                .bind(policy.map(ToSqlx::to_sqlx))
                .execute(lent.pg())
                .await
                .doing("sweep keys")?;
            lent.commit_so_far("sweep keys").await?;
            removed += swept.rows_affected();
        }
    }
    Ok(removed)
}

async fn ledger(inner: &Inner, lent: &mut Lent, now: Timestamp, policy: Option<Timestamp>) -> Result<u64> {
    let mut removed = 0;
    for (hold, before) in [("period", Some(now)), ("policy", policy)] {
        let Some(before) = before else { continue };
        let mut page = Page::start();
        while page
            .next(lent.pg(), inner.sql.ledger_page.clone(), hold, before)
            .await?
        {
            let swept = sqlx::query(inner.sql.sweep_ledger.clone())
                .bind(&page.keys)
                .bind(now.to_sqlx())
                .bind(policy.map(ToSqlx::to_sqlx))
                .execute(lent.pg())
                .await
                .doing("sweep ledger")?;
            lent.commit_so_far("sweep ledger").await?;
            removed += swept.rows_affected();
        }
    }
    Ok(removed)
}

/// One page of keys, and where the next begins.
struct Page {
    rows: Vec<PgRow>,
    keys: Vec<String>,
    from: (Timestamp, String),
    last: bool,
}

impl Page {
    fn start() -> Page {
        Page {
            rows: Vec::new(),
            keys: Vec::new(),
            from: (Timestamp::UNIX_EPOCH, String::new()),
            last: false,
        }
    }

    /// Reads the next one; `false` when there is none.
    async fn next(&mut self, pg: &mut PgConnection, sql: sqlx::SqlStr, hold: &str, before: Timestamp) -> Result<bool> {
        if self.last {
            return Ok(false);
        }
        self.rows = sqlx::query(sql)
            .bind(hold)
            .bind(before.to_sqlx())
            .bind(self.from.0.to_sqlx())
            .bind(&self.from.1)
            .bind(PAGE)
            .fetch_all(pg)
            .await
            .doing("sweep")?;
        let keys = self.rows.iter().map(|r| r.try_get("key"));
        self.keys = keys.collect::<sqlx::Result<_>>().doing("sweep")?;
        self.last = (self.rows.len() as i64) < PAGE;
        if let (Some(row), Some(key)) = (self.rows.last(), self.keys.last()) {
            self.from = (rows::at(row, "made_at").doing("sweep")?, key.clone());
        }
        Ok(!self.rows.is_empty())
    }
}
