//! A worker process to be killed, frozen, cut off and restarted by the suites. Its orders are its only argument.

use anyhow::Result;
use proof::victim::process::{self, Dress};
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> Result<()> {
    let orders = process::orders()?;
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(log.with_filter(process::log_level(&orders)))
        .init();
    process::run(&orders, Dress::PLAIN).await
}
