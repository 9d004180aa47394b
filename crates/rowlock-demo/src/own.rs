//! The tables of the demo's application beside the jobs, on either database.

use std::str::FromStr;

use rowlock::Backend;
use sqlx::{AssertSqlSafe, Connection, postgres::PgConnectOptions};

use crate::output::Advice;

/// The few statements that they need. Numbers only, so that one signature does for both databases.
pub(crate) trait Tables: Backend {
    /// How a column is declared that numbers its rows.
    const SERIAL: &str;

    /// Runs statements without arguments or answer.
    fn script(conn: &mut Self::Connection, sql: String) -> impl Future<Output = sqlx::Result<()>> + Send;
    /// Runs one statement; answers how many rows it touched.
    fn change(
        conn: &mut Self::Connection,
        sql: String,
        args: Vec<i64>,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
    /// Reads two numbers per row.
    fn pairs(conn: &mut Self::Connection, sql: String) -> impl Future<Output = sqlx::Result<Vec<(i64, i64)>>> + Send;
}

macro_rules! tables {
    ($($db:ty, $serial:literal;)*) => {$(
        impl Tables for $db {
            const SERIAL: &str = $serial;

            async fn script(conn: &mut Self::Connection, sql: String) -> sqlx::Result<()> {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
                Ok(())
            }

            async fn change(conn: &mut Self::Connection, sql: String, args: Vec<i64>) -> sqlx::Result<u64> {
                let query = sqlx::query::<$db>(AssertSqlSafe(sql));
                let query = args.into_iter().fold(query, |query, arg| query.bind(arg));
                Ok(query.execute(conn).await?.rows_affected())
            }

            async fn pairs(conn: &mut Self::Connection, sql: String) -> sqlx::Result<Vec<(i64, i64)>> {
                sqlx::query_as::<$db, (i64, i64)>(AssertSqlSafe(sql)).fetch_all(conn).await
            }
        }
    )*};
}

tables! {
    sqlx::Postgres, "bigserial primary key";
    sqlx::Sqlite, "integer primary key autoincrement";
}

/// A temporary place: a folder for files, and a new database or a schema in an existing one.
pub(crate) struct Site {
    pub(crate) url: String,
    /// PostgreSQL: holds the jobs and the application's tables, and is dropped as one. SQLite ignores it.
    pub(crate) schema: String,
    folder: tempfile::TempDir,
}

impl Site {
    /// Names the place and makes the folder; the schema comes with the first migration.
    ///
    /// # Errors
    /// An existing SQLite file is refused: the demo's tables could not be removed from it as one.
    pub(crate) fn new(database: Option<&str>, what: &str) -> anyhow::Result<Site> {
        if let Some(url) = database {
            rowlock::Admin::open(url, "rowlock")?;
            if url.starts_with("sqlite:") {
                return Err(Advice::error(
                    format!("{what} creates and deletes its own SQLite file, and does not run on another one"),
                    format!("rowlock {what}   without --database, or with a postgres:// URL"),
                ));
            }
            one_host(url, what)?;
        }
        let folder = tempfile::Builder::new().prefix(&format!("rowlock-{what}-")).tempdir()?;
        let file = || format!("sqlite:{}", folder.path().join(format!("{what}.db")).display());
        Ok(Site {
            url: database.map_or_else(file, str::to_owned),
            schema: format!("rowlock_{what}_{:08x}", fastrand::u32(..)),
            folder,
        })
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// What the names of the application's tables begin with.
    pub(crate) fn prefix(&self, what: &str) -> String {
        if self.is_postgres() {
            format!("{}.{what}_", self.schema)
        } else {
            format!("{what}_")
        }
    }

    /// The options that make another command look here; without the URL where that may hold a password.
    pub(crate) fn options(&self) -> String {
        if self.is_postgres() {
            return format!("--database … --schema {}", self.schema);
        }
        format!("--database {}", self.url)
    }

    /// Leaves everything where it is.
    pub(crate) fn keep(self) -> std::path::PathBuf {
        self.folder.keep()
    }

    /// Removes the folder and the schema.
    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        if self.is_postgres() {
            let mut conn = sqlx::PgConnection::connect(&self.url).await?;
            // The backend of a worker that was just killed may hold its locks for a moment.
            let sql = format!(
                "set client_min_messages = warning; set lock_timeout = '20s'; drop schema if exists {} cascade",
                self.schema
            );
            sqlx::Postgres::script(&mut conn, sql).await?;
            conn.close().await?;
        }
        self.folder.close()?;
        Ok(())
    }
}

/// The exit code that a shell reports for a program ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code for a demo that did not finish in its time: the one that `timeout` uses.
pub(crate) const TIMED_OUT: u8 = 124;

/// The application of the scene has its own connections, and the driver knows one host per URL.
fn one_host(url: &str, what: &str) -> anyhow::Result<()> {
    match PgConnectOptions::from_str(url) {
        Ok(options) if !options.get_host().contains(',') => Ok(()),
        _ => Err(Advice::error(
            format!("{what} uses one server, and the URL has several hosts"),
            format!("rowlock {what}   with the host of the primary only"),
        )),
    }
}
