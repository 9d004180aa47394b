//! A connection of the suites' own to the database under test, either kind.

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

/// A connection to either database. Tables of the library are written as on PostgreSQL.
pub enum Base {
    /// PostgreSQL.
    Postgres(PgConnection),
    /// SQLite.
    Sqlite(SqliteConnection),
}

/// Every row of a query as a tuple of these types, from either database.
#[macro_export]
macro_rules! rows {
    ($base:expr, $sql:expr, $row:ty) => {{
        let base: &mut $crate::base::Base = $base;
        let sql = sqlx::AssertSqlSafe(base.dialect($sql));
        match base {
            $crate::base::Base::Postgres(conn) => sqlx::query_as::<_, $row>(sql).fetch_all(conn).await,
            $crate::base::Base::Sqlite(conn) => sqlx::query_as::<_, $row>(sql).fetch_all(conn).await,
        }
    }};
}

impl Base {
    /// Connects.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn connect(url: &str) -> Result<Base> {
        Ok(if url.starts_with("sqlite:") {
            Base::Sqlite(SqliteConnection::connect(url).await?)
        } else {
            Base::Postgres(PgConnection::connect(url).await?)
        })
    }

    /// A statement in this database's words: table names, `{ms:column}` for a time in milliseconds, and `{xid}`.
    pub fn dialect(&self, sql: &str) -> String {
        let (table, before, after, xid) = match self {
            Base::Postgres(_) => ("rowlock.", "(extract(epoch from ", ") * 1000)::bigint", "proof_xid"),
            Base::Sqlite(_) => ("rowlock_", "(", " / 1000)", "cast(0 as integer)"),
        };
        let mut text = sql.replace("rowlock.", table).replace("{xid}", xid);
        while let Some((head, rest)) = text.split_once("{ms:") {
            let (column, tail) = rest.split_once('}').unwrap_or((rest, ""));
            text = format!("{head}{before}{column}{after}{tail}");
        }
        text
    }

    /// Runs statements.
    ///
    /// # Errors
    /// The database's.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        let text = AssertSqlSafe(self.dialect(sql));
        match self {
            Base::Postgres(conn) => sqlx::raw_sql(text).execute(conn).await.map(drop),
            Base::Sqlite(conn) => sqlx::raw_sql(text).execute(conn).await.map(drop),
        }
        .with_context(|| sql.to_owned())
    }

    /// The one number that a query gives.
    ///
    /// # Errors
    /// The database's.
    pub async fn number(&mut self, sql: &str) -> Result<i64> {
        let rows = rows!(self, sql, (i64,)).with_context(|| sql.to_owned())?;
        rows.first()
            .map(|row| row.0)
            .with_context(|| format!("no row from {sql}"))
    }

    /// Says goodbye, and waits until the other side has heard it.
    ///
    /// # Errors
    /// The database's.
    pub async fn close(self) -> Result<()> {
        match self {
            Base::Postgres(conn) => conn.close().await?,
            Base::Sqlite(conn) => conn.close().await?,
        }
        Ok(())
    }
}
