//! `rowlock effects`: outside calls of staged handlers, those in doubt first of all.

use anyhow::Result;
use rowlock::EffectFilter;

use super::{Place, tables};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also those that are not in doubt
    #[arg(long)]
    all: bool,
    /// Only this job's
    #[arg(long, value_name = "ID")]
    job: Option<i64>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    max: i64,
    /// Print a JSON array, each effect with its reply and error
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let filter = EffectFilter {
        job: args.job,
        doubtful: !args.all,
        max: args.max,
    };
    let effects = place.checked().await?.observe().effects(&filter).await?;
    if args.json {
        return output::print_json(&effects);
    }
    if effects.is_empty() {
        let none = if args.all {
            "no effects\n"
        } else {
            "no effects in doubt\n"
        };
        return output::print(none);
    }
    output::print(&tables::effects(&effects))?;
    if !args.all {
        output::note("find out whether it happened: rowlock effect resolve NO --happened JSON | --not-happened");
    }
    Ok(())
}
