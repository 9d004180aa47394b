//! `rowlock cases`: retired jobs that wait for a decision.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::observe::{CaseErrorView, CaseFilter, ErrorNo};

use super::Place;
use crate::output::{self, right, short, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Maximum number of cases or errors
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Count the cases of each error instead of listing every case
    #[arg(long, conflicts_with = "error")]
    by_error: bool,
    /// Only cases of this error, as --by-error lists them
    #[arg(long, value_name = "ERROR", value_parser = super::case::error_no)]
    error: Option<ErrorNo>,
    /// Print a JSON array, each case with its history
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let observe = place.checked().await?.observe();
    if args.by_error {
        let errors = observe.case_errors(args.max).await?;
        let unnamed = errors.is_empty() && !observe.cases(&CaseFilter::new().limit(1)).await?.is_empty();
        return by_error(&errors, unnamed, args.json);
    }
    let mut filter = CaseFilter::new().limit(args.max);
    if let Some(error) = args.error {
        filter = filter.error(error);
    }
    let cases = observe.cases(&filter).await?;
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
    output::note("rowlock inspect ID shows a case; rowlock case reopen ID runs its job again");
    Ok(())
}

fn by_error(errors: &[CaseErrorView], unnamed: bool, json: bool) -> Result<()> {
    if json {
        return output::print_json(&errors);
    }
    if unnamed {
        return output::print("there are open cases, but no worker has grouped them by error yet\n");
    }
    if errors.is_empty() {
        return output::print("no open cases\n");
    }
    let mut rows = table(["error", "cases", "first seen", "last seen", "newest", "reason"]);
    for error in errors {
        rows.add_row([
            Cell::new(error.no),
            right(error.cases),
            Cell::new(when(error.first_seen)),
            Cell::new(when(error.last_seen)),
            right(error.newest),
            Cell::new(short(&error.error, 80)),
        ]);
    }
    output::print(&text(&rows))?;
    output::note(
        "rowlock cases --error ERROR lists the cases of an error; rowlock case reopen --error ERROR reopens them",
    );
    Ok(())
}
