//! A connection of the run's own to the database under test, either kind, and the tables of the business.

use anyhow::{Context, Result};
use rowlock::Admin;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use super::jobs::{ACCOUNTS, OPENING_BALANCE};

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
        let base: &mut $crate::chaos::base::Base = $base;
        let sql = sqlx::AssertSqlSafe(base.dialect($sql));
        match base {
            $crate::chaos::base::Base::Postgres(conn) => sqlx::query_as::<_, $row>(sql).fetch_all(conn).await,
            $crate::chaos::base::Base::Sqlite(conn) => sqlx::query_as::<_, $row>(sql).fetch_all(conn).await,
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
}

/// Makes the library's tables and those of the business.
///
/// # Errors
/// The database's.
pub async fn set_up(url: &str) -> Result<()> {
    Admin::open(url, "rowlock")?.migrate().await?;
    let mut base = Base::connect(url).await?;
    let sqlite = matches!(base, Base::Sqlite(_));
    // The transaction that writes a row, whatever savepoints it is in.
    let xid = match sqlite {
        true => "",
        false => ", proof_xid bigint not null default (pg_current_xact_id()::text::bigint)",
    };
    base.run(&format!(
        "create table ledger (job bigint not null, epoch bigint not null, purchase bigint not null, note text not null{xid});
         create table purchase (no bigint not null, job bigint not null);
         create table decision (entity bigint not null, seen bigint not null, job bigint not null);
         create table account (id bigint primary key, balance bigint not null)"
    ))
    .await?;
    for account in 1..=ACCOUNTS {
        base.run(&format!("insert into account values ({account}, {OPENING_BALANCE})"))
            .await?;
    }
    if !sqlite {
        for table in ["rowlock.outcome", "rowlock.job"] {
            let column = "add column proof_xid bigint not null default (pg_current_xact_id()::text::bigint)";
            base.run(&format!("alter table {table} {column}")).await?;
        }
    }
    Ok(())
}
