//! Removes what the retention no longer keeps: history, cases, keys, ledger entries, completions, locks of dead
//! workers. Each statement is small, is a separate commit, and never waits for a row that another caller is about to
//! take.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{PgConnection, Row, SqlStr, postgres::PgRow};

use super::{Inner, recover};
use crate::{
    error::Result,
    retention::Retention,
    store::{Swept, group::STUCK, rows::Columns},
};

/// How long one part of the upkeep may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Rows removed in one commit, and commits in one round.
const PRUNE_MAX: i64 = 5000;
const PRUNE_ROUNDS: usize = 100;

/// Keys read in one statement.
const PAGE: i64 = 1000;

pub async fn maintain(inner: &Inner, retention: &Retention) -> Result<Swept> {
    let now = now(inner).await?;
    // No row is older than the epoch, and not every database can store earlier times.
    let ago = |time| {
        now.checked_sub(time)
            .map_or(Timestamp::UNIX_EPOCH, |at| at.max(Timestamp::UNIX_EPOCH))
    };
    let (sql, history) = (&inner.sql, ago(retention.history));
    let partitions = inner.run_within(LIMIT, "make partitions", async |pg| {
        Ok(recover::make_partitions(inner, pg).await?)
    });
    partitions.await?;
    execute(inner, "drop history", &sql.drop_history, history).await?;
    let mut swept = Swept {
        jobs: counted(inner, "prune", &sql.prune, history, PRUNE_MAX).await?,
        ..Swept::default()
    };
    if let Some(kept) = retention.cases {
        swept.cases = counted(inner, "sweep cases", &sql.sweep_cases, ago(kept), PAGE).await?;
        execute(inner, "sweep cases", &sql.sweep_case_errors, ago(kept)).await?;
    }
    let keys_before = retention.keys.map(ago);
    swept.keys = keys(inner, now, keys_before).await?;
    swept.ledger = ledger(inner, now, keys_before).await?;
    if let Some(before) = keys_before {
        aged(inner, "sweep completions", &sql.sweep_completions, Some(before)).await?;
    }
    aged(inner, "sweep breaker log", &sql.sweep_breaker_log, Some(history)).await?;
    if let Some(kept) = retention.audit {
        counted(inner, "sweep the audit", &sql.sweep_audit, ago(kept), PAGE).await?;
    }
    aged(inner, "sweep body locks", &sql.sweep_body_locks, None).await?;
    mend_groups(inner).await?;
    Ok(swept)
}

/// The database's time.
async fn now(inner: &Inner) -> Result<Timestamp> {
    if let Some(now) = inner.clock.now() {
        return Ok(now);
    }
    let read = inner.run("maintain", async |pg| {
        let read = sqlx::query_scalar("select clock_timestamp()");
        let now: jiff_sqlx::Timestamp = read.fetch_one(pg).await?;
        Ok(now.to_jiff())
    });
    read.await
}

/// Passes the turn on in groups whose head is finished.
async fn mend_groups(inner: &Inner) -> Result<()> {
    let mend = inner.query(&inner.sql.group_mend).bind(PAGE);
    let run = inner.run_within(LIMIT, "repair groups", async |pg| {
        Ok(mend.execute(pg).await?.rows_affected())
    });
    let mended = run.await?;
    if mended > 0 {
        tracing::warn!(groups = mended, "{STUCK}");
    }
    Ok(())
}

/// One statement about rows that ended before this time.
async fn execute(inner: &Inner, doing: &'static str, text: &SqlStr, before: Timestamp) -> Result<()> {
    let query = inner.query(text).bind(before.to_sqlx());
    let run = inner.run_within(LIMIT, doing, async |pg| Ok(query.execute(pg).await.map(drop)?));
    run.await
}

/// Removes rows older than this time, by a statement that returns how many it removed. Returns the total.
async fn counted(inner: &Inner, doing: &'static str, text: &SqlStr, before: Timestamp, max: i64) -> Result<u64> {
    let sweep = inner.run_lent(LIMIT, doing, async |lent| {
        let mut removed = 0;
        for _ in 0..PRUNE_ROUNDS {
            let round = inner.query_scalar(text).bind(before.to_sqlx()).bind(max);
            let round: i64 = round.fetch_one(lent.pg()).await?;
            lent.commit_so_far().await?;
            removed += round.unsigned_abs();
            if round < max {
                break;
            }
        }
        Ok(removed)
    });
    sweep.await
}

/// Removes rows older than this time, or rows that are not needed any more.
async fn aged(inner: &Inner, doing: &'static str, text: &SqlStr, before: Option<Timestamp>) -> Result<()> {
    let sweep = inner.run_lent(LIMIT, doing, async |lent| {
        for _ in 0..PRUNE_ROUNDS {
            let mut query = inner.query(text);
            if let Some(before) = before {
                query = query.bind(before.to_sqlx());
            }
            let swept = query.bind(PRUNE_MAX).execute(lent.pg()).await?;
            lent.commit_so_far().await?;
            if swept.rows_affected() < PRUNE_MAX.unsigned_abs() {
                break;
            }
        }
        Ok(())
    });
    sweep.await
}

/// Reads the enqueue keys page by page, so that no statement reads more than one page of keys that must stay.
async fn keys(inner: &Inner, now: Timestamp, policy: Option<Timestamp>) -> Result<u64> {
    let sweep = inner.run_lent(LIMIT, "sweep keys", async |lent| {
        let mut removed = 0;
        for (hold, before) in [("open", Some(now)), ("period", Some(now)), ("policy", policy)] {
            let Some(before) = before else { continue };
            let mut page = Page::start();
            while page.next(inner, lent.pg(), &inner.sql.keys_page, hold, before).await? {
                let ids = page.rows.iter().map(|row| row.try_get("id"));
                let swept = inner
                    .query(&inner.sql.sweep_keys)
                    .bind(&page.keys)
                    .bind(ids.collect::<sqlx::Result<Vec<i64>>>()?)
                    .bind(now.to_sqlx())
                    .bind(policy.map(ToSqlx::to_sqlx))
                    .execute(lent.pg())
                    .await?;
                lent.commit_so_far().await?;
                removed += swept.rows_affected();
            }
        }
        Ok(removed)
    });
    sweep.await
}

async fn ledger(inner: &Inner, now: Timestamp, policy: Option<Timestamp>) -> Result<u64> {
    let sweep = inner.run_lent(LIMIT, "sweep ledger", async |lent| {
        let mut removed = 0;
        for (hold, before) in [("period", Some(now)), ("policy", policy)] {
            let Some(before) = before else { continue };
            let mut page = Page::start();
            while page
                .next(inner, lent.pg(), &inner.sql.ledger_page, hold, before)
                .await?
            {
                let swept = inner
                    .query(&inner.sql.sweep_ledger)
                    .bind(&page.keys)
                    .bind(now.to_sqlx());
                let swept = swept.bind(policy.map(ToSqlx::to_sqlx)).execute(lent.pg()).await?;
                lent.commit_so_far().await?;
                removed += swept.rows_affected();
            }
        }
        Ok(removed)
    });
    sweep.await
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

    /// Reads the next page; `false` when there is none.
    async fn next(
        &mut self,
        inner: &Inner,
        pg: &mut PgConnection,
        text: &SqlStr,
        hold: &str,
        before: Timestamp,
    ) -> sqlx::Result<bool> {
        if self.last {
            return Ok(false);
        }
        self.rows = inner
            .query(text)
            .bind(hold)
            .bind(before.to_sqlx())
            .bind(self.from.0.to_sqlx())
            .bind(&self.from.1)
            .bind(PAGE)
            .fetch_all(pg)
            .await?;
        let keys = self.rows.iter().map(|row| row.try_get("key"));
        self.keys = keys.collect::<sqlx::Result<_>>()?;
        self.last = (self.rows.len() as i64) < PAGE;
        if let (Some(row), Some(key)) = (self.rows.last(), self.keys.last()) {
            self.from = (row.read("made_at")?, key.clone());
        }
        Ok(!self.rows.is_empty())
    }
}
