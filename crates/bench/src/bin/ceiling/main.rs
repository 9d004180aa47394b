//! What the database itself can do: the same work in raw SQL, without a framework.
//!
//! The tables are rowlock's own and end up in the same state: bodies kept, places and leases gone, outcomes written.

mod book;
mod lane;
mod lite;
mod pg;
mod run;

use anyhow::Result;
use clap::Parser as _;
use protocol::{Args, say, unsupported, within};
use rowlock::{Backend, Rowlock};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if args.verb == "about" {
        about();
        return Ok(());
    }
    let url = Args::url()?;
    within(args.limit_s, async {
        match (args.verb.as_str(), url.starts_with("sqlite:")) {
            ("setup", true) => setup::<sqlx::Sqlite>(&url).await,
            ("setup", false) => setup::<sqlx::Postgres>(&url).await,
            ("drain", lite) if args.kind == "book" => book::run(&url, &args, lite).await,
            ("enqueue" | "drain" | "life", true) => lite::run(&url, &args).await,
            ("enqueue" | "drain" | "life", false) => run::run(&url, &args).await,
            (other, _) => {
                unsupported(&format!("the ceiling has no verb {other}"));
                Ok(())
            }
        }
    })
    .await
}

async fn setup<DB: Backend>(url: &str) -> Result<()> {
    Rowlock::<DB>::open(url)?.migrate().await?;
    say(&json!({"event": "ready"}));
    Ok(())
}

fn about() {
    say(&json!({
        "event": "about",
        "name": "ceiling",
        "version": env!("CARGO_PKG_VERSION"),
        "settings": {
            "drain": format!(
                "tokio-postgres, {} connections, {} jobs per claim and settle, sent together; SQLite: one connection, \
                 {} jobs, settle and next claim in one commit",
                run::CONNECTIONS, run::BATCH, lite::BATCH
            ),
            "book": format!("sqlx, {} connections, begin, update, insert, commit, one await each", book::CONNECTIONS),
            "life": format!("as drain, and {} connections that insert", run::PRODUCERS),
            "enqueue": format!("{} connections, {} jobs per statement (unnest)", run::CONNECTIONS, run::CHUNK),
        },
        "keeps_history": true,
        "completes_in_handlers_tx": false,
        "fenced": true,
    }));
}
