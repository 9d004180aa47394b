//! `rowlock effects`: external calls of staged handlers, by default only the uncertain ones.

use anyhow::Result;
use rowlock::{JobId, effect::EffectFilter};

use super::{Place, tables};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Include calls that are not uncertain
    #[arg(long)]
    all: bool,
    /// Only calls of this job
    #[arg(long, value_name = "ID", value_parser = super::job_id)]
    job: Option<JobId>,
    /// Maximum number of calls
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Print a JSON array, each call with its reply and error
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let filter = args.job.into_iter().fold(EffectFilter::new(), EffectFilter::job);
    let filter = filter.limit(args.max);
    let filter = if args.all { filter } else { filter.doubtful() };
    let effects = place.checked().await?.observe().effects(&filter).await?;
    if args.json {
        return output::print_json(&effects);
    }
    if effects.is_empty() {
        let none = if args.all {
            "no effects\n"
        } else {
            "no uncertain effects\n"
        };
        return output::print(none);
    }
    output::print(&tables::effects(&effects))?;
    if !args.all {
        output::note(
            "find out whether the call happened, then run: rowlock effect resolve NO --happened JSON | --not-happened",
        );
    }
    Ok(())
}
