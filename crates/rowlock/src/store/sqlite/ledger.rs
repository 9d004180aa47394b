//! The ledger on a caller's own connection. Its first write takes the write lock, which is what a twin waits for.

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::{SqliteStore, now_us, refused, rows, sql};
use crate::{
    error::{Doing, Error, Result},
    store::{
        Fut,
        ledger::{Ask, Entry, Ledger, Mine, Taken},
        rows::Noun,
    },
};

impl Ledger<SqliteConnection> for SqliteStore {
    const BEGIN: &'static str = "begin immediate";

    fn take<'a>(&'a self, conn: &'a mut SqliteConnection, ask: &'a Ask) -> Fut<'a, Taken> {
        Box::pin(async { self.answered(take(conn, now_us(&self.inner.clock), ask).await) })
    }

    fn store<'a>(&'a self, conn: &'a mut SqliteConnection, key: &'a str, mine: Mine, answer: &'a str) -> Fut<'a, bool> {
        let store = sqlx::query(sql::ONCE_STORE)
            .bind(key)
            .bind(answer)
            .bind(mine.made_at.as_microsecond());
        Box::pin(async move { self.answered(store.execute(conn).await.map(|stored| stored.rows_affected() == 1)) })
    }

    fn look<'a>(&'a self, conn: &'a mut SqliteConnection, key: &'a str) -> Fut<'a, Option<Entry>> {
        Box::pin(async move { self.answered(read(conn, now_us(&self.inner.clock), key).await) })
    }

    fn mark<'a>(&'a self, conn: &'a mut SqliteConnection, no: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let mark = AssertSqlSafe(format!("savepoint rowlock_once_{no}"));
            sqlx::raw_sql(mark).execute(conn).await.map(drop).doing("once")
        })
    }

    fn back<'a>(&'a self, conn: &'a mut SqliteConnection, no: u64) -> Fut<'a, ()> {
        Box::pin(async move {
            let back = AssertSqlSafe(format!("rollback to savepoint rowlock_once_{no}"));
            sqlx::raw_sql(back).execute(conn).await.map(drop).doing("once")
        })
    }
}

impl SqliteStore {
    /// The answer of a verb in the caller's transaction, naming the file when its lock is the trouble.
    fn answered<T>(&self, said: sqlx::Result<T>) -> Result<T> {
        said.map_err(|e| refused::explained(e, &self.inner.opening.name()))
            .doing("once")
            .map_err(Error::answered)
    }
}

fn first(made_at: Timestamp) -> Taken {
    Taken::First(Mine {
        made_at,
        serializable: false,
    })
}

/// The insert holds the write lock, inserted or not, so nobody can come in between the statements.
async fn take(db: &mut SqliteConnection, now: i64, ask: &Ask) -> sqlx::Result<Taken> {
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

/// Both ways to take a key bind the same, and answer with the time of the entry they made.
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
    // To the end, and not to the first row only: SQLite has finished a write when it says so.
    let made: Vec<i64> = query.fetch_all(db).await?;
    made.first().copied().map(rows::time).transpose()
}

async fn read(db: &mut SqliteConnection, now: i64, key: &str) -> sqlx::Result<Option<Entry>> {
    let row = sqlx::query(sql::ONCE_READ)
        .bind(key)
        .bind(now)
        .fetch_optional(db)
        .await?;
    row.as_ref().map(Noun::of).transpose()
}
