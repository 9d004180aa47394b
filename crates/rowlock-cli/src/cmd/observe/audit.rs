//! `rowlock audit`: what operators did, newest first.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::{
    JobId,
    observe::{AuditFilter, AuditNo, AuditView},
};

use super::Place;
use crate::output::{self, right, short, table, text, when};

/// Longer texts are cut; `--json` has them in full.
const CELL: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only actions on this job
    #[arg(value_name = "ID", value_parser = super::job_id)]
    job: Option<JobId>,
    /// Only actions of this actor
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only entries below this number, for the next page
    #[arg(long, value_name = "NO")]
    below: Option<AuditNo>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Print a JSON array, with every text in full
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let filter = AuditFilter::new().below(args.below).limit(args.max);
    let filter = args.job.into_iter().fold(filter, |filter, job| filter.job(job));
    let filter = args.by.into_iter().fold(filter, AuditFilter::actor);
    let all = place.checked().await?.observe().audit(&filter).await?;
    if args.json {
        return output::print_json(&all);
    }
    if all.is_empty() {
        return output::print("no audit entries\n");
    }
    output::print(&shown(&all))?;
    let full = u32::try_from(all.len()).is_ok_and(|len| len == args.max);
    if let Some(last) = all.last().filter(|_| full) {
        output::note(&format!("there may be more entries: add --below {}", last.no));
    }
    Ok(())
}

fn shown(all: &[AuditView]) -> String {
    let mut rows = table(["no", "when", "who", "what", "job", "jobs", "detail", "before", "after"]);
    let cell = |value: &Option<String>| Cell::new(short(value.as_deref().unwrap_or_default(), CELL));
    for one in all {
        rows.add_row([
            right(one.no),
            Cell::new(when(one.at)),
            Cell::new(short(&one.actor, CELL)),
            Cell::new(&one.verb),
            right(one.job.map(|id| id.to_string()).unwrap_or_default()),
            right(one.jobs),
            cell(&one.detail),
            cell(&one.before),
            cell(&one.after),
        ]);
    }
    text(&rows)
}
