//! What runs inside a victim: the workers and their handlers, one source compiled once per database.

mod on_postgres;
mod on_sqlite;
mod point;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    net::SocketAddr,
};

use anyhow::{Context, Result};
use rowlock::{Attempt, Event, Fail};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::Orders;

/// What handlers reach.
#[derive(Debug)]
pub struct Tools {
    provider: Option<SocketAddr>,
    till: Option<SocketAddr>,
    starts: Option<File>,
}

impl Tools {
    fn new(orders: &Orders) -> Result<Tools> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Tools {
            provider: orders.provider,
            till: orders.till,
            starts: orders
                .starts
                .as_ref()
                .map(open)
                .transpose()
                .context("the file of starts")?,
        })
    }

    /// Notes that a handler has started. One write, so that lines of several processes do not mix.
    pub(crate) fn started(&self, attempt: &Attempt) -> Result<()> {
        let Some(mut file) = self.starts.as_ref() else {
            return Ok(());
        };
        Ok(file.write_all(format!("{} {}\n", attempt.id(), attempt.epoch()).as_bytes())?)
    }

    /// Causes the effect outside.
    pub(crate) async fn call(&self, key: &str, job: i64) -> Result<String> {
        let provider = self.provider.context("this victim was given no provider")?;
        crate::provider::call(provider, key, job).await
    }

    /// Charges an order.
    pub(crate) async fn charge(&self, key: &str, order: i64) -> Result<i64, Fail> {
        let till = self.till.ok_or_else(|| Fail::retire("this victim was given no till"))?;
        crate::till::charge(till, key, order).await
    }
}

/// A worker of a victim on PostgreSQL.
pub type OnPostgres = rowlock::postgres::Worker<Tools>;
/// A worker of a victim on SQLite.
pub type OnSqlite = rowlock::sqlite::Worker<Tools>;

/// What a program adds to every worker, beside what its orders say.
#[derive(Clone, Copy, Debug)]
pub struct Dress {
    /// On PostgreSQL.
    pub on_postgres: fn(OnPostgres) -> OnPostgres,
    /// On SQLite.
    pub on_sqlite: fn(OnSqlite) -> OnSqlite,
}

impl Dress {
    /// Nothing.
    pub const PLAIN: Dress = Dress {
        on_postgres: |worker| worker,
        on_sqlite: |worker| worker,
    };
}

/// The orders, from the program's only argument.
///
/// # Errors
/// There is none, or it does not read.
pub fn orders() -> Result<Orders> {
    let orders = std::env::args().nth(1).context("give the orders, as json")?;
    serde_json::from_str(&orders).context("the orders do not read")
}

/// What a victim's log lets through.
pub fn log_level(orders: &Orders) -> Targets {
    let level = if orders.quiet {
        LevelFilter::INFO
    } else {
        LevelFilter::DEBUG
    };
    Targets::new().with_target("rowlock", level)
}

/// Runs the workers until SIGTERM, or until nobody holds this process's stdin. Points block the thread they are hit on,
/// so that the runtime needs several.
///
/// # Errors
/// A worker's.
pub async fn run(orders: &Orders, dress: Dress) -> Result<()> {
    std::thread::spawn(crate::child::end_with_parent);
    let stop = CancellationToken::new();
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    // From here on it can be stopped.
    println!("{}", json!({"event": "up"}));
    let told = stop.clone();
    tokio::spawn(async move {
        asked.recv().await;
        told.cancel();
    });
    match orders.url.starts_with("sqlite:") {
        true => on_sqlite::run(orders, dress.on_sqlite, &stop).await,
        false => on_postgres::run(orders, dress.on_postgres, &stop).await,
    }
}

/// Prints an event as one line of JSON.
pub(crate) fn print(event: &Event, quiet: bool) {
    let line = match event {
        Event::Claimed { .. } | Event::Settled { .. } if quiet => return,
        Event::Claimed { jobs, .. } => json!({"event": "claimed", "jobs": jobs}),
        Event::Settled {
            id,
            attempt,
            ended,
            error,
            ..
        } => {
            json!({"event": "settled", "id": id, "attempt": attempt, "ended": ended.as_str(), "error": error})
        }
        Event::LeaseLost { id, attempt, .. } => json!({"event": "lease_lost", "id": id, "attempt": attempt}),
        Event::CommitResolved { id, committed, .. } => {
            json!({"event": "commit_resolved", "id": id, "committed": committed})
        }
        Event::Expired {
            id, worker, retired, ..
        } => {
            json!({"event": "expired", "id": id, "worker": worker.to_string(), "retired": retired})
        }
        Event::ClaimReplyLost { jobs, .. } => json!({"event": "claim_reply_lost", "jobs": jobs}),
        Event::EffectUncertain { id, no, .. } => json!({"event": "effect_uncertain", "id": id, "no": no}),
        Event::CutOff => json!({"event": "cut_off"}),
        Event::DeclaredDead => json!({"event": "declared_dead"}),
        other => Value::String(format!("{other:?}")),
    };
    println!("{line}");
}
