//! `rowlock verify`: whether the invariants hold, by one look at a live database.
//!
//! The exit code is for scripts: 0 when every check holds, 3 when one is broken or late, 1 when nothing is known to be
//! broken but a check did not finish.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::{Breach, CheckState, CheckView, Verification, VerifyLimits};
use serde::Serialize;

use super::Place;
use crate::{
    exit::Exit,
    output::{self, BOLD, CYAN, PLAIN, RED, right, table, text, watched},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many rows of a table each check looks at, the newest first
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    rows: i64,
    /// How long each check may take
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Printed<'a> {
    holds: bool,
    #[serde(flatten)]
    verification: &'a Verification,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let limits = VerifyLimits {
        rows: args.rows,
        time: Duration::from_secs(args.seconds),
        ..VerifyLimits::default()
    };
    let seen = place.checked().await?.observe().verify(&limits).await?;
    match args.json {
        true => output::print_json(&Printed {
            holds: seen.holds(),
            verification: &seen,
        })?,
        false => output::print(&format!("{}{}", checks(&seen.checks), breaches(&seen.checks)))?,
    }
    Ok(verdict(&seen))
}

fn checks(checks: &[CheckView]) -> String {
    let mut rows = table(["check", "", "rows", "broken", "jobs"]);
    for check in checks {
        rows.add_row([
            Cell::new(check.invariant.as_str()),
            state(check.state),
            right(match (check.state, check.whole) {
                (CheckState::NotFinished, _) => String::new(),
                (_, true) => check.looked.to_string(),
                (_, false) => format!("newest {}", check.looked),
            }),
            match check.state {
                CheckState::NotFinished => right("?"),
                _ => watched(check.broken),
            },
            Cell::new(jobs(&check.breaches)),
        ]);
    }
    text(&rows)
}

fn state(state: CheckState) -> Cell {
    match state {
        CheckState::Holds => Cell::new("holds").fg(Color::Green),
        CheckState::Broken => Cell::new("broken").fg(Color::Red),
        CheckState::Late => Cell::new("late").fg(Color::Red),
        _ => Cell::new("not finished").fg(Color::Yellow),
    }
}

fn jobs(breaches: &[Breach]) -> String {
    let ids: Vec<String> = breaches.iter().filter_map(|b| b.job).map(|id| id.to_string()).collect();
    ids.join(", ")
}

/// What each broken check says, and how the first few jobs break it.
fn breaches(checks: &[CheckView]) -> String {
    let mut said = String::new();
    for check in checks.iter().filter(|check| !check.breaches.is_empty()) {
        said += &format!("\n{BOLD}{}{PLAIN}: {}\n", check.invariant.as_str(), check.claim);
        for breach in &check.breaches {
            said += &match breach.job {
                Some(job) => format!("  job {job} {}\n", breach.what),
                None => format!("  {}\n", breach.what),
            };
        }
        let rest = check.broken - i64::try_from(check.breaches.len()).unwrap_or(i64::MAX);
        if rest > 0 {
            said += &format!("  and {rest} more\n");
        }
    }
    said
}

/// Says what to do, if there is anything, and gives the exit code.
fn verdict(seen: &Verification) -> ExitCode {
    let all = seen.checks.len();
    let count = |state| seen.that(state).count();
    let [broken, late, unfinished] = [CheckState::Broken, CheckState::Late, CheckState::NotFinished].map(count);
    for (count, what, next) in [
        (
            broken,
            "broken",
            "change nothing yet: keep a copy of the database, and what `rowlock verify --json` and `rowlock inspect ID` \
             say; if nobody wrote to the tables by hand, report it",
        ),
        (late, "late", "see that a worker runs, and look again in a minute"),
        (
            unfinished,
            "not finished",
            "give it more --seconds, fewer --rows, or a quieter hour",
        ),
    ] {
        if count > 0 {
            output::note(&format!(
                "{RED}error:{PLAIN} of {all} checks {count} {} {what}",
                verb(count)
            ));
            output::note(&format!("{CYAN}try:  {PLAIN} {next}"));
        }
    }
    match (broken + late, unfinished) {
        (0, 0) => Exit::Done.into(),
        (0, _) => Exit::Failed.into(),
        // What scripts may rely on to mean a broken invariant, and nothing else.
        _ => Exit::NotMet.into(),
    }
}

fn verb(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
