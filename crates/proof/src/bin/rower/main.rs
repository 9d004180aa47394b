//! A process of the chaos run: a worker with the handlers of every workload, or a producer. Its orders are its only
//! argument; it ends when its stdin closes.

#![allow(
    clippy::duplicate_mod,
    reason = "the handlers are one source, compiled once per database"
)]

mod on_postgres;
mod on_sqlite;
mod tools;

use anyhow::{Context, Result};
use proof::chaos::orders::{Role, RowerOrders};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

// Fail points block the thread they are hit on; the others must be able to go on meanwhile.
#[tokio::main(flavor = "multi_thread", worker_threads = 3)]
async fn main() -> Result<()> {
    let orders = std::env::args().nth(1).context("give the orders, as json")?;
    let orders: RowerOrders = serde_json::from_str(&orders).context("the orders do not read")?;
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    let only = Targets::new().with_target("rowlock", LevelFilter::INFO);
    tracing_subscriber::registry().with(log.with_filter(only)).init();
    std::thread::spawn(proof::child::end_with_parent);
    let stop = CancellationToken::new();
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let told = stop.clone();
    tokio::spawn(async move {
        asked.recv().await;
        told.cancel();
    });
    println!("up");
    let sqlite = orders.url.starts_with("sqlite:");
    match (&orders.role, sqlite) {
        (Role::Work { .. }, true) => on_sqlite::work(&orders, stop).await,
        (Role::Work { .. }, false) => on_postgres::work(&orders, stop).await,
        (Role::Migrate, _) => {
            rowlock::Admin::open(&orders.url, "rowlock")?.migrate().await?;
            Ok(())
        }
        (Role::Produce { .. }, true) => on_sqlite::produce(&orders, &stop).await,
        (Role::Produce { .. }, false) => on_postgres::produce(&orders, &stop).await,
    }
}
