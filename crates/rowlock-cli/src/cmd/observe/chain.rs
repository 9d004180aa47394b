//! `rowlock chain`: every job of a chain, by the id of any of them.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::{JobId, observe::JobView};

use super::{Place, tables};
use crate::output::{self, right, short, table, text};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Id of any job of the chain
    #[arg(value_parser = super::job_id)]
    id: JobId,
    /// Print a JSON array, first link first
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let chain = place.checked().await?.observe().chain(args.id).await?;
    if chain.is_empty() {
        return Err(super::no_job(args.id));
    }
    if args.json {
        return output::print_json(&chain);
    }
    output::print(&shown(&chain))
}

fn shown(chain: &[JobView]) -> String {
    let mut rows = table(["link", "id", "kind", "queue", "state", "attempt", "when", "last error"]);
    for job in chain {
        rows.add_row([
            right(job.position),
            right(job.id),
            Cell::new(&job.kind),
            Cell::new(&job.queue),
            tables::state(job),
            right(format!("{}/{}", job.attempt, job.attempts_max)),
            Cell::new(tables::moment(job)),
            Cell::new(job.last_error.as_deref().map(|e| short(e, 80)).unwrap_or_default()),
        ]);
    }
    text(&rows)
}
