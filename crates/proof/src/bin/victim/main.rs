//! A worker process to be killed, frozen, cut off and restarted by the suites. Its orders are its only argument.

#![allow(
    clippy::duplicate_mod,
    reason = "the handlers are one source, compiled once per database"
)]

mod exports;
mod on_postgres;
mod on_sqlite;
mod point;

use std::{
    fs::{File, OpenOptions},
    io::Write,
    net::SocketAddr,
};

use anyhow::{Context, Result};
use proof::victim::Orders;
use rowlock::{Attempt, Event, Fail};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What handlers reach.
#[derive(Debug)]
pub(crate) struct Tools {
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
        proof::provider::call(provider, key, job).await
    }

    /// Charges an order.
    pub(crate) async fn charge(&self, key: &str, order: i64) -> Result<i64, Fail> {
        let till = self.till.ok_or_else(|| Fail::retire("this victim was given no till"))?;
        proof::till::charge(till, key, order).await
    }
}

// Points block the thread they are hit on; the others must be able to go on meanwhile.
#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> Result<()> {
    let orders = std::env::args().nth(1).context("give the orders, as json")?;
    let orders: Orders = serde_json::from_str(&orders).context("the orders do not read")?;
    let exports = exports::start(&orders)?;
    std::thread::spawn(proof::child::end_with_parent);
    let stop = CancellationToken::new();
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    // From here on it can be told to stop.
    println!("{}", json!({"event": "up"}));
    let told = stop.clone();
    tokio::spawn(async move {
        asked.recv().await;
        told.cancel();
    });
    let ran = if orders.url.starts_with("sqlite:") {
        on_sqlite::run(&orders, &stop).await
    } else {
        on_postgres::run(&orders, &stop).await
    };
    exports.end().await?;
    ran
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
        Event::ClaimReplyLost { jobs } => json!({"event": "claim_reply_lost", "jobs": jobs}),
        Event::EffectUncertain { id, no, .. } => json!({"event": "effect_uncertain", "id": id, "no": no}),
        Event::CutOff => json!({"event": "cut_off"}),
        Event::DeclaredDead => json!({"event": "declared_dead"}),
        other => Value::String(format!("{other:?}")),
    };
    println!("{line}");
}
