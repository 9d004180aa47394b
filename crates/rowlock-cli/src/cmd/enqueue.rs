//! `rowlock enqueue`: a job by its kind and JSON payload, in a commit of its own.

use std::time::Duration;

use anyhow::Result;
use rowlock::{Enqueued, Group, Hold, NamedJob, State};

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
    /// Due when somebody triggers it, such as `rowlock bridge sqs` by a pointer in its queue
    #[arg(long, conflicts_with = "after")]
    on_trigger: bool,
    /// The payload's version
    #[arg(long, default_value_t = 1)]
    version: i32,
    /// A name for the operation: while it is held, a repeat makes no second job
    #[arg(long)]
    key: Option<String>,
    /// How long the key is held: while its job is open, for ever, or for at least so long, such as 30d; else as long as
    /// the workers keep keys
    #[arg(long, value_parser = hold, value_name = "open|ever|30d", requires = "key")]
    hold: Option<Hold>,
    /// Runs after every job of this group that was enqueued before it, and never beside one
    #[arg(long)]
    group: Option<String>,
    /// When this job is retired, its group stops until the case is reopened or removed
    #[arg(long, requires = "group")]
    group_stops: bool,
}

fn hold(text: &str) -> Result<Hold, String> {
    match text {
        "open" => Ok(Hold::WhileOpen),
        "ever" => Ok(Hold::ForEver),
        period => {
            let period = duration(period).map_err(|_| "give open, ever, or a time such as 30d".to_owned())?;
            Ok(Hold::For(period))
        }
    }
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
        on_trigger: args.on_trigger,
        key: args.key,
        hold: args.hold.unwrap_or_default(),
        group: args.group.map(|name| match args.group_stops {
            true => Group::new(name).stop_when_retired(),
            false => Group::new(name),
        }),
    };
    let put = place.checked().await?.enqueue(job).await?;
    output::print(&format!("{}\n", put.id()))?;
    if let Enqueued::Existing(existing) = put {
        let state = existing.state.map_or("gone, only its key is left", State::as_str);
        output::note(&format!("the key is held by that job already; it is {state}"));
    }
    Ok(())
}
