//! Our benchmarks, through the public API.

mod claims;
mod drain;
mod enqueue;
mod grow;
mod handlers;
mod life;
mod pickup;
mod tuning;
mod verbs;

use anyhow::Result;
use clap::Parser as _;
use protocol::{Args, unsupported, within};
use rowlock::Rowlock;

use self::handlers::Tables;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if args.verb == "about" {
        tuning::about();
        return Ok(());
    }
    let url = Args::url()?;
    if args.verb == "claims" {
        return within(args.limit_s, claims::run(&url, &args)).await;
    }
    if url.starts_with("sqlite:") {
        within(args.limit_s, run::<sqlx::Sqlite>(&url, &args)).await
    } else {
        within(args.limit_s, run::<sqlx::Postgres>(&url, &args)).await
    }
}

async fn run<DB: Tables>(url: &str, args: &Args) -> Result<()> {
    let rowlock = Rowlock::<DB>::open(url)?;
    match args.verb.as_str() {
        "setup" => verbs::setup(&rowlock).await,
        "enqueue" => enqueue::run(&rowlock, args).await,
        "drain" => drain::run(&rowlock, args).await,
        "life" => life::run(&rowlock, args).await,
        "hold" => life::hold(&rowlock, args).await,
        "pickup" => pickup::run(&rowlock, args).await,
        "stuck" => verbs::stuck(&rowlock, args).await,
        "idle" => verbs::idle(&rowlock, args).await,
        "grow-enqueue" => grow::enqueue(&rowlock, args).await,
        "grow-drain" => grow::drain(&rowlock, args).await,
        other => {
            unsupported(&format!("no verb {other}"));
            Ok(())
        }
    }
}
