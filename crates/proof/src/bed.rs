//! Fresh databases for cases, and the note of what ran where.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sqlx::{Connection, PgConnection};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{pooler::Pooler, template};

/// How many connections a pooler keeps for a case: fewer than the case has, so that they are shared.
const POOLED: usize = 6;

/// How often the server is asked to drop a database that somebody is still leaving.
const REMOVE_TRIES: u32 = 12;

/// A server or file kind that cases run on: `sqlite`, `pg15`, …
#[derive(Clone, Debug)]
pub struct Server {
    /// What the summary calls it.
    pub label: String,
    /// For PostgreSQL, the URL of a database to create others from.
    pub url: String,
    /// Whether the library reaches it through a pooler.
    pub pooled: bool,
}

/// The PostgreSQL servers of this run, from `ROWLOCK_TEST_PG_URLS`. Empty only when the run allows them to be
/// missing.
///
/// # Panics
/// When the variable is not set: a suite that silently runs nothing would look green.
pub fn postgres_servers() -> Vec<Server> {
    let urls = std::env::var("ROWLOCK_TEST_PG_URLS");
    let urls =
        urls.expect("ROWLOCK_TEST_PG_URLS is not set; run `cargo xtask test`, or `cargo xtask servers` for hand work");
    let pairs = urls.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(label, url)| Server {
            label: label.to_owned(),
            url: url.to_owned(),
            pooled: false,
        })
        .collect()
}

/// The SQLite of this run: always there.
pub fn sqlite_server() -> Vec<Server> {
    vec![Server {
        label: "sqlite".into(),
        url: String::new(),
        pooled: false,
    }]
}

/// One case's own database.
pub struct Database {
    /// What a driver takes.
    pub url: String,
    /// What `Rowlock::open` takes: the same, unless a pooler is between.
    pub queue_url: String,
    label: String,
    // Where a PostgreSQL database was created from; empty for SQLite.
    server_url: String,
    // Keeps the folder of a SQLite file alive.
    _folder: Option<tempfile::TempDir>,
    /// The pooler between.
    pub pooler: Option<Pooler>,
}

impl Database {
    /// Makes an empty one, and notes that `case` runs on this server.
    ///
    /// # Errors
    /// The server could not be reached.
    pub async fn bare(server: &Server, case: &str) -> Result<Database> {
        Database::make(server, case, false).await
    }

    /// Makes one with the schema in place, and notes that `case` runs on this server.
    ///
    /// # Errors
    /// The server could not be reached.
    pub async fn fresh(server: &Server, case: &str) -> Result<Database> {
        Database::make(server, case, true).await
    }

    async fn make(server: &Server, case: &str, migrated: bool) -> Result<Database> {
        note(&server.label, case)?;
        if server.url.is_empty() {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("proof.db");
            if migrated {
                template::on_sqlite(&file).await?;
            }
            let url = format!("sqlite:{}", file.display());
            return Ok(Database {
                queue_url: url.clone(),
                url,
                label: server.label.clone(),
                server_url: String::new(),
                _folder: Some(folder),
                pooler: None,
            });
        }
        // Random, because a process id comes back while the database of a failed case may still be there.
        let name = format!("case_{:016x}", fastrand::u64(..));
        let mut admin = PgConnection::connect(&server.url)
            .await
            .context("connecting to the test server")?;
        let (base, _) = server
            .url
            .rsplit_once('/')
            .context("a postgresql url ends with a database")?;
        let from = match migrated {
            true => format!(" template {}", template::on_postgres(&mut admin, base).await?),
            false => String::new(),
        };
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {name}{from}")))
            .execute(&mut admin)
            .await?;
        admin.close().await?;
        let url = format!("{base}/{name}");
        let pooler = match server.pooled {
            true => Pooler::before(&url, POOLED).await?,
            false => None,
        };
        Ok(Database {
            queue_url: pooler.as_ref().map_or(Ok(url.clone()), |pooler| pooler.url(&url))?,
            url,
            label: server.label.clone(),
            server_url: server.url.clone(),
            _folder: None,
            pooler,
        })
    }

    /// Drops it, because a server for hand work outlives the run. Open connections are ended.
    ///
    /// # Errors
    /// The server could not be reached.
    pub async fn remove(self) -> Result<()> {
        let Some((_, name)) = self.url.rsplit_once('/').filter(|_| !self.server_url.is_empty()) else {
            return Ok(());
        };
        let mut admin = PgConnection::connect(&self.server_url)
            .await
            .context("connecting to the test server")?;
        let drop = format!("drop database {name} with (force)");
        let mut tries = 1;
        while let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(drop.clone()))
            .execute(&mut admin)
            .await
        {
            // The server waits five seconds for those it sends away, which a busy machine may not do with.
            let in_use = error.as_database_error().and_then(|e| e.code()).as_deref() == Some("55006");
            if !in_use || tries == REMOVE_TRIES {
                return Err(error.into());
            }
            tries += 1;
        }
        admin.close().await?;
        Ok(())
    }

    /// The copy of this database on another server.
    ///
    /// # Errors
    /// It is a SQLite file.
    pub fn copy_on(&self, server: &Server) -> Result<Database> {
        let name = self.url.strip_prefix(self.server_url.trim_end_matches("postgres"));
        let base = server.url.trim_end_matches("postgres");
        let url = format!("{base}{}", name.context("a postgresql url ends with a database")?);
        Ok(Database {
            queue_url: url.clone(),
            url,
            label: server.label.clone(),
            server_url: server.url.clone(),
            _folder: None,
            pooler: None,
        })
    }

    /// The server's label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether it is SQLite.
    pub fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite:")
    }
}

/// Shows the log of a test that fails, as far as `RUST_LOG` asks for it: levels by target, such as `rowlock=debug`.
pub fn show_log() {
    let wanted = std::env::var("RUST_LOG").unwrap_or_default();
    let wanted: Targets = wanted.parse().unwrap_or_else(|error| panic!("RUST_LOG: {error}"));
    let lines = tracing_subscriber::fmt::layer().with_test_writer();
    // Not the first test of this process.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(wanted))
        .try_init();
}

/// Appends one line to the run's case log, if there is one.
fn note(label: &str, case: &str) -> Result<()> {
    let Ok(path) = std::env::var("ROWLOCK_CASE_LOG") else {
        return Ok(());
    };
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    // One write, so that lines of parallel tests do not mix.
    log.write_all(format!("{label}\t{case}\n").as_bytes())?;
    Ok(())
}

/// Polls until `check` gives a value.
///
/// # Panics
/// When it has not after `limit`; `what` says what was waited for.
pub async fn until<T, F>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let start = Instant::now();
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
