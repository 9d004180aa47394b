//! `rowlock jobs`: lists jobs, newest first.

use anyhow::Result;
use rowlock::{JobFilter, State};

use super::{Place, tables};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only this state
    #[arg(long, value_parser = state, value_name = "ready|waiting|leased|case|finished")]
    state: Option<State>,
    /// Only jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only the job that holds this key
    #[arg(long)]
    key: Option<String>,
    /// Only jobs of this group
    #[arg(long)]
    group: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    max: i64,
    /// Only ids below this one: the next page
    #[arg(long, value_name = "ID")]
    below: Option<i64>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

pub(super) fn state(word: &str) -> Result<State, String> {
    State::parse(word).ok_or_else(|| "give ready, waiting, leased, case or finished".into())
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let filter = JobFilter {
        queue: args.queue,
        kind: args.kind,
        state: args.state,
        tag: args.tag,
        key: args.key,
        group: args.group,
        below: args.below,
        max: args.max,
    };
    let jobs = place.checked().await?.observe().jobs(&filter).await?;
    if args.json {
        return output::print_json(&jobs);
    }
    if jobs.is_empty() {
        return output::print("no such jobs\n");
    }
    output::print(&tables::jobs(&jobs))?;
    let full = i64::try_from(jobs.len()).is_ok_and(|n| n == args.max);
    if let (true, Some(last)) = (full, jobs.last()) {
        output::note(&format!("there may be more: --below {}", last.id));
    }
    Ok(())
}
