//! The ledger on a caller's own connection. Its first write takes the write lock, and a concurrent caller waits for
//! that lock.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use crate::store::sqlite::{rows, sql};
use crate::store::{
    ledger::{Ask, Entry, Mine, Taken},
    rows::Noun,
};

pub async fn store(db: &mut SqliteConnection, key: &str, mine: Mine, answer: &str) -> sqlx::Result<bool> {
    let store = sqlx::query(sql::ONCE_STORE).bind(key).bind(answer);
    let stored = store.bind(mine.made_at.as_microsecond()).execute(db).await?;
    Ok(stored.rows_affected() == 1)
}

fn first(made_at: Timestamp) -> Taken {
    Taken::First(Mine {
        made_at,
        serializable: false,
    })
}

/// The insert takes the write lock even if it inserts nothing, so no other write can happen between the statements.
pub async fn take(db: &mut SqliteConnection, now: i64, ask: &Ask) -> sqlx::Result<Taken> {
    if let Some(made_at) = write(db, now, ask, sql::ONCE_TAKE, None).await? {
        return Ok(first(made_at));
    }
    let entry = read(db, now, &ask.key).await?.ok_or(sqlx::Error::RowNotFound)?;
    if !entry.over {
        return Ok(Taken::Seen(entry));
    }
    let made_at = write(db, now, ask, sql::ONCE_TAKE_OVER, Some(entry.made_at)).await?;
    made_at.map(first).ok_or(sqlx::Error::RowNotFound)
}

/// Both ways to take a key have the same parameters, and return the time of the new entry.
async fn write(
    db: &mut SqliteConnection,
    now: i64,
    ask: &Ask,
    statement: &'static str,
    instead_of: Option<Timestamp>,
) -> sqlx::Result<Option<Timestamp>> {
    let mut query = sqlx::query_scalar(statement)
        .bind(&ask.key)
        .bind(ask.print())
        .bind(ask.hold.as_str())
        .bind(ask.period_us())
        .bind(now);
    if let Some(made_at) = instead_of {
        query = query.bind(made_at.as_microsecond());
    }
    // Reads all rows, not only the first: SQLite completes the write only when the statement is finished.
    let made: Vec<i64> = query.fetch_all(db).await?;
    made.first().copied().map(rows::time).transpose()
}

pub async fn read(db: &mut SqliteConnection, now: i64, key: &str) -> sqlx::Result<Option<Entry>> {
    let row = sqlx::query(sql::ONCE_READ)
        .bind(key)
        .bind(now)
        .fetch_optional(db)
        .await?;
    row.as_ref().map(Noun::of).transpose()
}
