//! `rowlock enqueue`: a job by its kind and JSON payload, in a commit of its own.

use std::time::Duration;

use anyhow::Result;
use rowlock::NamedJob;

use super::{Place, duration};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which handler runs it
    kind: String,
    /// The payload as JSON
    #[arg(value_name = "JSON")]
    payload: String,
    /// Its queue
    #[arg(long, default_value = "default")]
    queue: String,
    /// 1 runs first, strictly, 5 last
    #[arg(long, default_value_t = 3)]
    priority: i16,
    /// How many attempts it gets before it becomes a case
    #[arg(long, default_value_t = 10)]
    attempts: i32,
    /// Due this long from now, such as 500ms, 5s, 10m, 2h or 1d
    #[arg(long, value_parser = duration, default_value = "0s")]
    after: Duration,
    /// The payload's version
    #[arg(long, default_value_t = 1)]
    version: i32,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let job = NamedJob {
        kind: args.kind,
        version: args.version,
        payload: args.payload,
        queue: args.queue,
        priority: args.priority,
        attempts_max: args.attempts,
        delay: args.after,
    };
    let id = place.checked().await?.enqueue(job).await?.id();
    output::print(&format!("{id}\n"))
}
