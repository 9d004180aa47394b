//! A pooler in transaction mode, such as PgBouncer, between this process and the server.
//!
//! Behind a pooler, a connection has a server only for a single transaction. The session state (settings, named
//! statements, a process id, listeners) then belongs to the next client. So every statement is part of a transaction,
//! settings apply to that transaction only, and each transaction checks again which server it is on.

use sqlx::{PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::error::sqlstate;
use crate::store::postgres::Inner;

/// Removes the statements that the last transaction left under the driver's names, because our connection would use the
/// same names. This runs in a separate transaction, so that the next transaction's snapshot is not older than its first
/// statement.
const FORGET: &str = "begin; do $$ declare name text; begin \
    for name in select s.name from pg_prepared_statements s where s.name like 'sqlx\\_s\\_%' loop \
    execute format('deallocate %I', name); end loop; end $$; commit; ";

/// The use of a pooler by one process.
pub struct Pooler {
    /// Distinguishes this process from all others.
    tag: Uuid,
}

impl Pooler {
    pub fn new() -> Pooler {
        Pooler { tag: Uuid::now_v7() }
    }

    /// A pooler refuses a parameter that it does not know. A statement cache would refer to statements of another
    /// server.
    pub fn fit(options: PgConnectOptions) -> PgConnectOptions {
        options.extra_float_digits(None).statement_cache_capacity(0)
    }

    /// The name of a transaction in the server's list of connections while it is open, without its number.
    pub fn name(&self, of: &str) -> String {
        // The server cuts names in this list after 63 bytes.
        format!("{of} {} ", self.tag.simple())
    }

    /// The text that begins a transaction, with the settings that a session would otherwise have.
    pub fn begin(text: &str, settings: &str) -> String {
        let (begin, rest) = text.split_once(';').unwrap_or((text, ""));
        format!("{FORGET}{begin}; {settings}{rest}")
    }
}

/// Adds what to do when a pooler refuses a parameter that only servers know.
pub fn explained(error: sqlx::Error) -> sqlx::Error {
    match &error {
        sqlx::Error::Database(said) if said.message().contains("unsupported startup parameter") => {
            sqlx::Error::Configuration(
                format!(
                    "a pooler answered instead of a server; add pgbouncer=true to the URL if the pooler is in \
                     transaction mode ({})",
                    said.message()
                )
                .into(),
            )
        }
        _ => error,
    }
}

/// Asks the server, because only the server knows of a transaction that was begun or ended by plain SQL.
pub async fn in_transaction(pg: &mut PgConnection) -> sqlx::Result<bool> {
    let asked = sqlx::raw_sql("savepoint rowlock_asked; release savepoint rowlock_asked");
    match asked.execute(pg).await {
        Ok(_) => Ok(true),
        Err(e) if sqlstate(&e).as_deref() == Some("25P01") => Ok(false),
        Err(e) => Err(e),
    }
}

/// A transaction around statements on a caller's own connection, if a pooler needs one and the caller has begun none.
#[must_use = "end it"]
pub struct Whole {
    ours: bool,
}

impl Whole {
    pub async fn begin(inner: &Inner, pg: &mut PgConnection) -> sqlx::Result<Whole> {
        if inner.hosts.pooler.is_none() {
            return Ok(Whole { ours: false });
        }
        let ours = !in_transaction(pg).await?;
        if ours {
            sqlx::raw_sql("begin").execute(pg).await?;
        }
        Ok(Whole { ours })
    }

    /// Commits after success, if the transaction is ours.
    pub async fn end<T>(self, pg: &mut PgConnection, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if self.ours {
            let end = if result.is_ok() { "commit" } else { "rollback" };
            let ended = sqlx::raw_sql(end).execute(pg).await;
            // The first error is the one to report.
            let value = result?;
            return ended.map(|_| value);
        }
        result
    }
}
