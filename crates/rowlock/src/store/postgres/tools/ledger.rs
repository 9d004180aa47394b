//! The ledger on a caller's own connection.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{PgConnection, SqlStr};

use crate::store::postgres::{Inner, by_key::ByKey, run::Fault};
use crate::{
    error::{Error, Result},
    store::{
        ledger::{Ask, Entry, Mine, Taken},
        rows::{Columns, Noun},
    },
};

/// How often an entry may vanish between the insert that met it and the read. Each time, another transaction has
/// removed it. So more than a few times mean that the entry exists but may not be read.
const ROUNDS_MAX: usize = 50;

/// Reads an entry without taking the key and without waiting.
pub async fn read_alone(inner: &Inner, pg: &mut PgConnection, key: &str) -> sqlx::Result<Option<Entry>> {
    let by_key = ByKey::begin(inner, pg).await?;
    let found = read(inner, pg, key).await?;
    by_key.end(inner, pg).await?;
    Ok(found)
}

pub async fn take(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken, Fault> {
    let Some(limit) = ask.wait else {
        return insert_or_read(inner, pg, ask).await;
    };
    // A limit of zero would mean no limit.
    let limit = format!("{}ms", limit.max(Duration::from_millis(1)).as_millis());
    let before = wait_at_most(inner, pg, &limit).await?;
    let taken = insert_or_read(inner, pg, ask).await?;
    wait_at_most(inner, pg, &before).await?;
    Ok(taken)
}

/// Sets the transaction's lock timeout and returns the old value.
async fn wait_at_most(inner: &Inner, pg: &mut PgConnection, limit: &str) -> sqlx::Result<String> {
    let set = inner.query_scalar(&inner.sql.lock_wait).bind(limit);
    set.fetch_one(pg).await
}

async fn insert_or_read(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken, Fault> {
    if let Some(mine) = write(inner, pg, ask, &inner.sql.once_take, None).await? {
        return Ok(Taken::First(mine));
    }
    let by_key = ByKey::begin(inner, pg).await?;
    let taken = read_or_take_over(inner, pg, ask).await?;
    by_key.end(inner, pg).await?;
    Ok(taken)
}

async fn read_or_take_over(inner: &Inner, pg: &mut PgConnection, ask: &Ask) -> Result<Taken, Fault> {
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
    let again = Error::TryAgain {
        doing: "once",
        source: sqlx::Error::RowNotFound,
    };
    Err(again.into())
}

/// Both ways to take a key have the same parameters, and return the time of the new entry.
async fn write(
    inner: &Inner,
    pg: &mut PgConnection,
    ask: &Ask,
    statement: &SqlStr,
    instead_of: Option<Timestamp>,
) -> sqlx::Result<Option<Mine>> {
    let mut query = inner
        .query(statement)
        .bind(&ask.key)
        .bind(ask.print())
        .bind(ask.hold.as_str())
        .bind(ask.period_us())
        .bind(inner.now());
    if let Some(made_at) = instead_of {
        query = query.bind(made_at.to_sqlx());
    }
    let row = query.fetch_optional(pg).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Mine {
        made_at: row.read("made_at")?,
        serializable: row.read("serializable")?,
    }))
}

pub async fn store(inner: &Inner, pg: &mut PgConnection, key: &str, mine: Mine, answer: &str) -> sqlx::Result<bool> {
    let by_key = match mine.serializable {
        true => Some(ByKey::begin(inner, pg).await?),
        false => None,
    };
    let stored = inner
        .query(&inner.sql.once_store)
        .bind(key)
        .bind(answer)
        .bind(mine.made_at.to_sqlx())
        .execute(&mut *pg)
        .await?;
    if let Some(by_key) = by_key {
        by_key.end(inner, pg).await?;
    }
    Ok(stored.rows_affected() == 1)
}

async fn read(inner: &Inner, pg: &mut PgConnection, key: &str) -> sqlx::Result<Option<Entry>> {
    let row = inner
        .query(&inner.sql.once_read)
        .bind(key)
        .bind(inner.now())
        .fetch_optional(pg)
        .await?;
    row.as_ref().map(Noun::of).transpose()
}
