//! `rowlock verify`: checks the invariants on a live database.
//!
//! The exit code is for scripts: 0 if every check holds, 3 if one is broken or late, 1 if nothing is known to be broken
//! but a check did not finish.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::observe::{Breach, CheckState, CheckView, Invariant, Verification, VerifyLimits};
use serde::Serialize;

use super::Place;
use crate::{
    exit::Exit,
    output::{self, BOLD, CYAN, PLAIN, RED, right, table, text, watched},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rows of a table that each check reads, newest first
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    rows: i64,
    /// Time limit of each check
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    holds: bool,
    checks: Vec<Check<'a>>,
}

#[derive(Serialize)]
struct Check<'a> {
    check: Invariant,
    claim: &'static str,
    state: CheckState,
    rows: i64,
    complete: bool,
    broken: i64,
    breaches: &'a [Breach],
    took_ms: u64,
}

impl<'a> Check<'a> {
    fn of(seen: &'a CheckView) -> Check<'a> {
        Check {
            check: seen.invariant,
            claim: seen.claim,
            state: seen.state,
            rows: seen.looked,
            complete: seen.whole,
            broken: seen.broken,
            breaches: &seen.breaches,
            took_ms: seen.took_ms,
        }
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let limits = VerifyLimits::new()
        .rows(args.rows)
        .time(Duration::from_secs(args.seconds));
    let seen = place.checked().await?.observe().verify(&limits).await?;
    match args.json {
        true => output::print_json(&Printed {
            holds: seen.holds(),
            checks: seen.checks.iter().map(Check::of).collect(),
        })?,
        false => output::print(&format!("{}{}", checks(&seen.checks), breaches(&seen.checks)))?,
    }
    Ok(verdict(&seen))
}

fn checks(checks: &[CheckView]) -> String {
    let mut rows = table(["check", "", "rows", "broken", "claim"]);
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
            Cell::new(check.claim),
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

/// How the first few jobs break each claim that does not hold.
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

/// Prints what to do about each problem, and gives the exit code.
fn verdict(seen: &Verification) -> ExitCode {
    let all = seen.checks.len();
    let count = |state| seen.that(state).count();
    let [broken, late, unfinished] = [CheckState::Broken, CheckState::Late, CheckState::NotFinished].map(count);
    for (count, what, next) in [
        (
            broken,
            "broken",
            "change nothing yet: keep a copy of the database and the output of `rowlock verify --json` and \
             `rowlock inspect ID`; if the tables were not changed by hand, report it",
        ),
        (
            late,
            "late",
            "make sure that a worker runs, and verify again in a minute",
        ),
        (
            unfinished,
            "not finished",
            "use more --seconds or fewer --rows, or verify when the load is lower",
        ),
    ] {
        if count > 0 {
            output::note(&format!(
                "{RED}error:{PLAIN} {count} of {all} checks {} {what}",
                verb(count)
            ));
            output::note(&format!("{CYAN}try:  {PLAIN} {next}"));
        }
    }
    match (broken + late, unfinished) {
        (0, 0) => Exit::Done.into(),
        (0, _) => Exit::Failed.into(),
        // Scripts rely on it: a broken invariant, and nothing else.
        _ => Exit::NotMet.into(),
    }
}

fn verb(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
