//! `rowlock complete`: completes a name that jobs wait for.

use anyhow::Result;
use rowlock::Completed;

use super::Place;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name, such as approval:42
    name: String,
    /// The answer for the jobs that wait, as JSON
    #[arg(value_name = "JSON")]
    answer: Option<String>,
    /// Print one JSON object: name, whether it was completed now, and how many jobs moved to ready
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    let name = &args.name;
    let moved = match admin.complete(name, args.answer.as_deref()).await? {
        Completed::Now(jobs) => Some(jobs),
        _ => None,
    };
    if args.json {
        let completed = moved.is_some();
        let jobs = moved.unwrap_or_default();
        return output::print_json(&serde_json::json!({ "name": name, "completed": completed, "jobs": jobs }));
    }
    output::print(&match moved {
        Some(1) => format!("completed {name}: 1 job moved to ready\n"),
        Some(jobs) => format!("completed {name}: {jobs} jobs moved to ready\n"),
        None => format!("{name} was already completed; the first answer is kept\n"),
    })
}
