//! A pooler in transaction mode, such as PgBouncer, between us and the server.
//!
//! Behind one a connection is a server's for a single transaction: what a session keeps (settings, named statements, a
//! process id, who listens) belongs to whoever comes next. So every statement is part of a transaction, settings are made
//! for that transaction alone, and each transaction asks anew on which server it is.

use sqlx::{PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::error::sqlstate;
use crate::store::postgres::Inner;

/// Removes the statements that the transaction before left under the driver's names: this connection of ours would use
/// the same ones. In a transaction of its own, so that the next one's snapshot is not older than its first statement.
const FORGET: &str = "begin; do $$ declare name text; begin \
    for name in select s.name from pg_prepared_statements s where s.name like 'sqlx\\_s\\_%' loop \
    execute format('deallocate %I', name); end loop; end $$; commit; ";

/// One process's way through a pooler.
pub struct Pooler {
    /// Told apart from all others by this.
    tag: Uuid,
}

impl Pooler {
    pub fn new() -> Pooler {
        Pooler { tag: Uuid::now_v7() }
    }

    /// A pooler refuses a parameter that it does not know. A cache of statements would remember what another server has.
    pub fn fit(options: PgConnectOptions) -> PgConnectOptions {
        options.extra_float_digits(None).statement_cache_capacity(0)
    }

    /// What the server's list of connections calls a transaction while it lasts, but for its number.
    pub fn name(&self, of: &str) -> String {
        // The list cuts names after 63 bytes.
        format!("{of} {} ", self.tag.simple())
    }

    /// The text that begins a transaction, with what a session would have had before it.
    pub fn begin(text: &str, settings: &str) -> String {
        let (begin, rest) = text.split_once(';').unwrap_or((text, ""));
        format!("{FORGET}{begin}; {settings}{rest}")
    }
}

/// Says what to do when a pooler refuses what only servers know.
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

/// Asks the server, which alone knows of a transaction begun or ended by hand.
pub async fn in_transaction(pg: &mut PgConnection) -> sqlx::Result<bool> {
    let asked = sqlx::raw_sql("savepoint rowlock_asked; release savepoint rowlock_asked");
    match asked.execute(pg).await {
        Ok(_) => Ok(true),
        Err(e) if sqlstate(&e).as_deref() == Some("25P01") => Ok(false),
        Err(e) => Err(e),
    }
}

/// A transaction around statements on a caller's own connection, where a pooler needs one and the caller has begun none.
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

    /// Commits what succeeded, if the transaction is ours.
    pub async fn end<T>(self, pg: &mut PgConnection, result: sqlx::Result<T>) -> sqlx::Result<T> {
        if self.ours {
            let end = if result.is_ok() { "commit" } else { "rollback" };
            let ended = sqlx::raw_sql(end).execute(pg).await;
            // What went wrong first is what to tell.
            let value = result?;
            return ended.map(|_| value);
        }
        result
    }
}
