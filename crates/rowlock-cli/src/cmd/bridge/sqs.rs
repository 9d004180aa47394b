//! `rowlock bridge sqs`: runs a bridge between an SQS queue and the jobs, until Ctrl-C or SIGTERM.

use std::{sync::Arc, time::Duration};

use anyhow::{Error, Result};
use rowlock_sqs::{Bridge, Config, Count, Counts, Role};
use serde::Serialize;

use crate::{
    cmd::{Place, duration, signal::interrupted},
    output::{self, Advice},
};

/// Region and credentials come from the AWS environment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// URL of the SQS queue
    #[arg(long, value_name = "URL")]
    queue_url: String,
    /// Queue of jobs: other messages become jobs of this queue, and pointers are sent for its jobs
    #[arg(long, value_name = "NAME", default_value = "default")]
    queue: String,
    /// Kind of messages that name none in the attribute rowlock-kind
    #[arg(long)]
    kind: Option<String>,
    /// Also send pointers: for jobs that were not triggered yet, and for due jobs that no worker took
    #[arg(long)]
    produce: bool,
    /// Send only; receive nothing
    #[arg(long, requires = "produce")]
    only_produce: bool,
    /// URL of a dead-letter queue; its messages become cases
    #[arg(long = "dead-letter", value_name = "URL")]
    drain: Option<String>,
    /// Visibility timeout of a message; it is extended while the job runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    visibility: Duration,
    /// How long a due job may wait for a worker before another pointer is sent
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60s")]
    grace: Duration,
    /// Number of concurrent polls
    #[arg(long, value_name = "N", default_value_t = 1)]
    receivers: usize,
    /// Endpoint URL of SQS, such as the URL of an emulator
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// How often to print the counters
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    every: Duration,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let mut config = Config::new(&args.queue_url, &args.queue);
    config.role = match (args.produce, args.only_produce) {
        (false, _) => Role::Consume,
        (true, false) => Role::Both,
        (true, true) => Role::Produce,
    };
    config.kind = args.kind;
    config.visibility = args.visibility;
    config.grace = args.grace;
    config.receivers = args.receivers;
    config.drain_url = args.drain;
    let client = rowlock_sqs::connect(args.endpoint_url.as_deref()).await;
    let bridge = Bridge::new(place.checked().await?, client, config).map_err(explained)?;
    let counts = bridge.counts();
    let every = args.every.max(Duration::from_millis(100));
    let telling = tell(counts.clone(), every, args.json);
    let run = bridge.run_until(interrupted());
    tokio::select! {
        ended = run => ended.map_err(explained)?,
        told = telling => told?,
    }
    line(&counts.read(), args.json)
}

/// A setting out of its limits is a usage error.
fn explained(error: rowlock_sqs::Error) -> Error {
    match error {
        rowlock_sqs::Error::Config { .. } => {
            Advice::usage(error.to_string(), "rowlock bridge sqs --help   lists the settings")
        }
        rowlock_sqs::Error::NoQueue { .. } => Advice::missing(
            error.to_string(),
            "aws sqs list-queues   lists the queues of the region; or check --endpoint-url",
        ),
        other => Error::new(other),
    }
}

async fn tell(counts: Arc<Counts>, every: Duration, json: bool) -> Result<()> {
    loop {
        tokio::time::sleep(every).await;
        line(&counts.read(), json)?;
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: jiff::Timestamp,
    #[serde(flatten)]
    count: &'a Count,
}

/// Every number that is not zero, or all of them as JSON.
fn line(count: &Count, json: bool) -> Result<()> {
    let at = jiff::Timestamp::now();
    if json {
        return output::print(&format!("{}\n", serde_json::to_string(&Line { at, count })?));
    }
    let serde_json::Value::Object(all) = serde_json::to_value(count)? else {
        return Ok(());
    };
    let words: Vec<String> = all
        .iter()
        .filter(|(_, value)| value.as_u64() != Some(0))
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    let said = if words.is_empty() {
        "nothing yet".to_owned()
    } else {
        words.join(", ")
    };
    output::print(&format!("{said}\n"))
}
