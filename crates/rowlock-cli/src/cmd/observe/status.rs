//! `rowlock status`: how many jobs are due, waiting, running or retired, and which workers run.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::{
    breaker::{BreakerState, BreakerView},
    observe::{LaneStatus, PauseView, Status},
};
use serde::Serialize;

use super::{Place, workers};
use crate::output::{self, right, span_ms, table, text, watched, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let observe = place.checked().await?.observe();
    let (status, pauses) = (observe.status().await?, observe.pauses().await?);
    let mut breakers = observe.breakers().await?;
    breakers.retain(|breaker| breaker.state != BreakerState::Closed || breaker.forced);
    if args.json {
        return output::print_json(&Shown {
            status: &status,
            pauses: &pauses,
            breakers: &breakers,
        });
    }
    let stopped = stopped(&pauses, &breakers);
    output::print(&format!(
        "{}\n{}{stopped}",
        lanes(&status.lanes),
        workers::shown(&status.workers)
    ))
}

/// The status, with everything that stops jobs from being claimed.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a Status,
    pauses: &'a [PauseView],
    /// Only breakers that are not closed, or forced.
    breakers: &'a [BreakerView],
}

/// One line for each pause and open breaker.
fn stopped(pauses: &[PauseView], breakers: &[BreakerView]) -> String {
    let mut lines = String::new();
    for pause in pauses {
        lines += &format!("{} was paused by {} {}\n", pause.target, pause.by, when(pause.since));
    }
    for breaker in breakers {
        let forced = if breaker.forced { ", forced" } else { "" };
        let (state, by) = (breaker.state, &breaker.changed_by);
        lines += &format!(
            "breaker {} is {state}{forced}, by {by} {}\n",
            breaker.name,
            when(breaker.changed_at)
        );
    }
    match lines.is_empty() {
        true => lines,
        false => format!("\n{lines}"),
    }
}

fn lanes(lanes: &[LaneStatus]) -> String {
    if lanes.is_empty() {
        return "no open jobs\n".into();
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
        let counted = |jobs: i64| match lane.more {
            true => right(format!("{jobs}+")),
            false => right(jobs),
        };
        rows.add_row([
            Cell::new(&lane.queue),
            Cell::new(&lane.kind),
            counted(lane.due),
            counted(lane.scheduled),
            counted(lane.waiting),
            counted(lane.leased),
            match lane.more {
                true => counted(lane.cases),
                false => watched(lane.cases),
            },
            right(lane.oldest_due_ms.map(span_ms).unwrap_or_default()),
        ]);
    }
    text(&rows)
}
