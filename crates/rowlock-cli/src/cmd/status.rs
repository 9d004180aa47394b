//! `rowlock status`: what waits, runs or was retired, and who works.

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::{LaneStatus, WorkerStatus};

use super::Place;
use crate::output::{self, right, span_ms, table, text, watched};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let status = place.checked().await?.observe().status().await?;
    if args.json {
        return output::print_json(&status);
    }
    output::print(&format!("{}\n{}", lanes(&status.lanes), workers(&status.workers)))
}

fn lanes(lanes: &[LaneStatus]) -> String {
    if lanes.is_empty() {
        return "no job waits, runs or is a case\n".into();
    }
    let mut rows = table([
        "queue",
        "kind",
        "due",
        "scheduled",
        "waiting",
        "leased",
        "cases",
        "oldest due",
    ]);
    for lane in lanes {
        rows.add_row([
            Cell::new(&lane.queue),
            Cell::new(&lane.kind),
            right(lane.due),
            right(lane.scheduled),
            right(lane.waiting),
            right(lane.leased),
            watched(lane.cases),
            right(lane.oldest_due_ms.map(span_ms).unwrap_or_default()),
        ]);
    }
    text(&rows)
}

fn workers(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "no worker is registered\n".into();
    }
    let mut rows = table(["worker", "name", "holds", "last beat", "lease", ""]);
    for worker in workers {
        rows.add_row([
            Cell::new(worker.id),
            Cell::new(&worker.name),
            right(worker.leases),
            right(format!("{} ago", span_ms(worker.beat_age_ms))),
            right(span_ms(worker.lease_ms)),
            match (worker.dead, worker.leases) {
                (false, _) => Cell::new(""),
                (true, 0) => Cell::new("gone"),
                (true, _) => Cell::new("dead").fg(Color::Red),
            },
        ]);
    }
    text(&rows)
}
