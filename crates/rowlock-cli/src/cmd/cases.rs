//! `rowlock cases`: retired jobs that wait for a decision.

use anyhow::Result;
use comfy_table::Cell;

use super::Place;
use crate::output::{self, right, short, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    max: i64,
    /// Print a JSON array, each case with its history
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let cases = place.checked().await?.observe().cases(args.max).await?;
    if args.json {
        return output::print_json(&cases);
    }
    if cases.is_empty() {
        return output::print("no open cases\n");
    }
    let mut rows = table(["id", "kind", "queue", "attempts", "retired", "reason"]);
    for case in &cases {
        rows.add_row([
            right(case.id),
            Cell::new(&case.kind),
            Cell::new(&case.queue),
            right(format!("{}/{}", case.attempt, case.attempts_max)),
            Cell::new(when(case.retired_at)),
            Cell::new(short(&case.reason, 80)),
        ]);
    }
    output::print(&text(&rows))?;
    output::note("rowlock inspect ID shows one; rowlock reopen ID tries it again");
    Ok(())
}
