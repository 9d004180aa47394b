//! The PostgreSQL server: fresh databases, and what it counted meanwhile.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::cpu;
use anyhow::{Context, Result};
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool};

/// Long enough for a program's connections to be gone and their counts with it.
const LEAVE_POLLS: usize = 150;
const LEAVE_POLL: Duration = Duration::from_millis(20);

/// The server of the run.
#[derive(Debug)]
pub(crate) struct Server {
    pool: PgPool,
    url: String,
    made: AtomicU32,
    pub(crate) log: PathBuf,
    /// The postmaster's process.
    pid: Option<i32>,
}

/// Commits in one database; bytes of log and processor time of the whole server: nothing else runs meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: f64,
    pub(crate) wal_bytes: f64,
    /// Of the postmaster and all its processes; `None` where they cannot be seen.
    pub(crate) cpu_s: Option<f64>,
}

impl Server {
    pub(crate) async fn connect(url: &str, log: PathBuf) -> Result<Server> {
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect(url)
            .await
            .context("could not reach the server; start the benchmark by `cargo xtask bench`")?;
        let pid: String = sqlx::query_scalar("select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")
            .fetch_one(&pool)
            .await
            .context("could not ask for the server's process")?;
        Ok(Server {
            pid: pid.trim().parse().ok(),
            pool,
            url: url.to_owned(),
            made: AtomicU32::new(0),
            log,
        })
    }

    /// Makes an empty database and gives its name and address.
    pub(crate) async fn make_database(&self) -> Result<(String, String)> {
        let name = format!("bench_{}", self.made.fetch_add(1, Ordering::Relaxed));
        self.execute(&format!("create database {name}")).await?;
        let (base, _) = self
            .url
            .rsplit_once('/')
            .context("the server's address has no database")?;
        Ok((name.clone(), format!("{base}/{name}")))
    }

    /// Dropping a database makes the server write a checkpoint, so every measurement begins right after one.
    pub(crate) async fn drop_database(&self, name: &str) {
        if let Err(error) = self
            .execute(&format!("drop database if exists {name} with (force)"))
            .await
        {
            eprintln!("could not drop {name}: {error:#}");
        }
    }

    pub(crate) async fn execute(&self, sql: &str) -> Result<()> {
        self.pool
            .execute(AssertSqlSafe(sql.to_owned()))
            .await
            .with_context(|| format!("could not run `{sql}`"))?;
        Ok(())
    }

    /// Reads the counters once every connection to the database is closed: they report their commits on leaving.
    pub(crate) async fn counters(&self, database: &str) -> Result<Counters> {
        for _ in 0..LEAVE_POLLS {
            let left: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity where datname = $1 and backend_type = 'client backend'",
            )
            .bind(database)
            .fetch_one(&self.pool)
            .await?;
            if left == 0 {
                break;
            }
            tokio::time::sleep(LEAVE_POLL).await;
        }
        let (commits, wal_bytes): (i64, f64) = sqlx::query_as(
            "select xact_commit, (pg_current_wal_lsn() - '0/0')::float8 from pg_stat_database where datname = $1",
        )
        .bind(database)
        .fetch_one(&self.pool)
        .await
        .context("could not read the counters")?;
        Ok(Counters {
            commits: commits as f64,
            wal_bytes,
            cpu_s: self.pid.map(cpu::of_family).transpose()?,
        })
    }

    /// One value as text.
    pub(crate) async fn ask(&self, sql: &str) -> Result<String> {
        let value: Option<String> = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&self.pool)
            .await?;
        Ok(value.unwrap_or_default())
    }
}

/// Opens one connection to a database of the run.
pub(crate) async fn open(url: &str) -> Result<PgConnection> {
    PgConnection::connect(url).await.context("could not reach the database")
}

/// Runs statements, several in one string if given so.
pub(crate) async fn execute(connection: &mut PgConnection, sql: &str) -> Result<()> {
    connection
        .execute(AssertSqlSafe(sql.to_owned()))
        .await
        .with_context(|| format!("could not run `{sql}`"))?;
    Ok(())
}
