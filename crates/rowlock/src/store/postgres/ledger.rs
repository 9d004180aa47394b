//! The ledger on a caller's own connection.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{AssertSqlSafe, PgConnection, Row, SqlStr, postgres::PgRow};

use super::{Inner, PgStore, by_key::ByKey, rows};
use crate::{
    error::{Doing, Error, Result},
    store::{
        Fut,
        ledger::{Ask, Entry, Ledger, Mine, Taken},
    },
};

/// How often an entry may vanish between the insert that met it and the read. Each time somebody else's commit removed it,
/// so more than a few mean that it is there but may not be read.
const ROUNDS_MAX: usize = 50;

impl Ledger<PgConnection> for PgStore {
    const BEGIN: &'static str = "begin";

    fn take<'a>(&'a self, conn: &'a mut PgConnection, ask: &'a Ask) -> Fut<'a, Taken> {
        Box::pin(async { take(&self.0, conn, ask).await.map_err(Error::answered) })
    }

    fn store<'a>(&'a self, conn: &'a mut PgConnection, key: &'a str, mine: Mine, answer: &'a str) -> Fut<'a, bool> {
        Box::pin(async move { store(&self.0, conn, key, mine, answer).await.map_err(Error::answered) })
    }

    fn look<'a>(&'a self, conn: &'a mut PgConnection, key: &'a str) -> Fut<'a, Option<Entry>> {
        Box::pin(async move {
            let found = async {
                let by_key = ByKey::begin(&self.0, conn, "once").await?;
                let found = read(&self.0, conn, key).await?;
                by_key.end(&self.0, conn, "once").await?;
                Ok(found)
            };
            found.await.map_err(Error::answered)
        })
    }

    fn mark<'a>(&'a self, conn: &'a mut PgConnection, no: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let mark = AssertSqlSafe(format!("savepoint rowlock_once_{no}"));
            sqlx::raw_sql(mark).execute(conn).await.map(drop).doing("once")
        })
    }

    fn back<'a>(&'a self, conn: &'a mut PgConnection, no: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let back = AssertSqlSafe(format!("rollback to savepoint rowlock_once_{no}"));
            sqlx::raw_sql(back).execute(conn).await.map(drop).doing("once")
        })
    }
}

async fn take(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken> {
    let Some(limit) = ask.wait else {
        return insert_or_read(inner, pg, ask).await;
    };
    // A limit of zero would mean none.
    let limit = format!("{}ms", limit.max(Duration::from_millis(1)).as_millis());
    let before = wait_at_most(inner, pg, &limit).await?;
    let taken = insert_or_read(inner, pg, ask).await?;
    wait_at_most(inner, pg, &before).await?;
    Ok(taken)
}

/// Sets the transaction's lock time-out and says what it was.
async fn wait_at_most(inner: &Inner, pg: &mut PgConnection, limit: &str) -> Result<String> {
    let set = sqlx::query_scalar(inner.sql.lock_wait.clone())
        .persistent(inner.named())
        .bind(limit);
    set.fetch_one(pg).await.doing("once")
}

async fn insert_or_read(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken> {
    if let Some(mine) = write(inner, pg, ask, &inner.sql.once_take, None).await? {
        return Ok(Taken::First(mine));
    }
    let by_key = ByKey::begin(inner, pg, "once").await?;
    let taken = read_or_take_over(inner, pg, ask).await?;
    by_key.end(inner, pg, "once").await?;
    Ok(taken)
}

async fn read_or_take_over(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken> {
    for _ in 0..ROUNDS_MAX {
        while let Some(entry) = read(inner, pg, &ask.key).await? {
            if !entry.over {
                return Ok(Taken::Seen(entry));
            }
            let taken = write(inner, pg, ask, &inner.sql.once_take_over, Some(entry.made_at)).await?;
            if let Some(mine) = taken {
                return Ok(Taken::First(mine));
            }
        }
        if let Some(mine) = write(inner, pg, ask, &inner.sql.once_take, None).await? {
            return Ok(Taken::First(mine));
        }
    }
    Err(Error::TryAgain {
        doing: "once",
        source: sqlx::Error::RowNotFound,
    })
}

/// Both ways to take a key bind the same, and answer with the time of the entry they made.
async fn write(
    inner: &Inner,
    pg: &mut PgConnection,
    ask: &Ask,
    statement: &SqlStr,
    instead_of: Option<Timestamp>,
) -> Result<Option<Mine>> {
    let mut query = sqlx::query(statement.clone())
        .persistent(inner.named())
        .bind(&ask.key)
        .bind(ask.print())
        .bind(ask.hold.as_str())
        .bind(ask.period_us())
        .bind(inner.now());
    if let Some(made_at) = instead_of {
        query = query.bind(made_at.to_sqlx());
    }
    let row = query.fetch_optional(pg).await.doing("once")?;
    let mine = |row: PgRow| -> sqlx::Result<Mine> {
        Ok(Mine {
            made_at: rows::at(&row, "made_at")?,
            serializable: row.try_get("serializable")?,
        })
    };
    row.map(mine).transpose().doing("once")
}

async fn store(inner: &Inner, pg: &mut PgConnection, key: &str, mine: Mine, answer: &str) -> Result<bool> {
    let by_key = match mine.serializable {
        true => Some(ByKey::begin(inner, pg, "once").await?),
        false => None,
    };
    let stored = sqlx::query(inner.sql.once_store.clone())
        .persistent(inner.named())
        .bind(key)
        .bind(answer)
        .bind(mine.made_at.to_sqlx())
        .execute(&mut *pg)
        .await
        .doing("once")?;
    if let Some(by_key) = by_key {
        by_key.end(inner, pg, "once").await?;
    }
    Ok(stored.rows_affected() == 1)
}

async fn read(inner: &Inner, pg: &mut PgConnection, key: &str) -> Result<Option<Entry>> {
    let row = sqlx::query(inner.sql.once_read.clone())
        .persistent(inner.named())
        .bind(key)
        .bind(inner.now())
        .fetch_optional(pg)
        .await
        .doing("once")?;
    let Some(row) = row else { return Ok(None) };
    let entry = || -> sqlx::Result<Entry> {
        Ok(Entry {
            fingerprint: row.try_get("fingerprint")?,
            answer: row.try_get("answer")?,
            made_at: rows::at(&row, "made_at")?,
            over: row.try_get("over")?,
        })
    };
    entry().map(Some).doing("once")
}
