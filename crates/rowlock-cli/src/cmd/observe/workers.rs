//! `rowlock workers`: the processes that claim jobs, and whether they are alive.

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::observe::WorkerStatus;
use serde::Serialize;

use super::Place;
use crate::output::{self, right, span_ms, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    worker: &'a WorkerStatus,
    state: &'static str,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let workers = place.checked().await?.observe().status().await?.workers;
    if args.json {
        let printed = workers.iter().map(|worker| Printed {
            worker,
            state: state(worker),
        });
        return output::print_json(&printed.collect::<Vec<_>>());
    }
    output::print(&shown(&workers))?;
    if workers.iter().any(|worker| state(worker) != ALIVE) {
        output::note("another worker takes over the jobs of a silent worker one second after its lease ends");
    }
    Ok(())
}

/// The table of workers, for `rowlock status` too.
pub(super) fn shown(workers: &[WorkerStatus]) -> String {
    if workers.is_empty() {
        return "no workers\n".into();
    }
    let mut rows = table(["worker", "name", "state", "holds", "last heartbeat", "lease", "since"]);
    for worker in workers {
        let state = state(worker);
        rows.add_row([
            Cell::new(i64::from(worker.id)),
            Cell::new(&worker.name),
            match state {
                ALIVE => Cell::new(state).fg(Color::Green),
                _ => Cell::new(state).fg(Color::Red),
            },
            right(worker.leases),
            right(format!("{} ago", span_ms(worker.beat_age_ms))),
            right(span_ms(worker.lease_ms)),
            Cell::new(when(worker.started_at)),
        ]);
    }
    text(&rows)
}

const ALIVE: &str = "alive";

/// Silent: its lease is over. Dead: another worker has noticed that, and recovers its jobs.
fn state(worker: &WorkerStatus) -> &'static str {
    match (worker.dead, worker.beat_age_ms > worker.lease_ms) {
        (true, _) => "dead",
        (false, true) => "silent",
        (false, false) => ALIVE,
    }
}
