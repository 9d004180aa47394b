//! `rowlock complete`: completes a name that jobs wait for.

use anyhow::Result;
use rowlock::Completed;

use super::Place;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name, such as approval:42
    name: String,
    /// The answer as JSON, for the jobs that wait for it
    #[arg(value_name = "JSON")]
    answer: Option<String>,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    let name = &args.name;
    output::print(&match admin.complete(name, args.answer.as_deref()).await? {
        Completed::Now(1) => format!("completed {name}: 1 job moved to ready\n"),
        Completed::Now(jobs) => format!("completed {name}: {jobs} jobs moved to ready\n"),
        _ => format!("{name} was completed before; the first answer stays\n"),
    })
}
