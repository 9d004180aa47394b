//! `rowlock adopt`: checks an existing table, prints what it needs so that workers can run its rows, and applies that
//! on request.
//!
//! The exit code is for scripts: 3 if the table is not ready and nothing was applied.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::{
    adopt::{Adopted, ColumnFound, Columns, Inspection, Part},
    postgres::Rowlock,
};
use serde::Serialize;

use super::Place;
use crate::{
    exit::Exit,
    output::{self, Advice, CYAN, PLAIN, RED, table, text},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exact name of the table: email_snoozes, app.email_snoozes, or '"Odd schema"."odd table"'
    table: String,
    /// Column with the time at which a row is due
    #[arg(long, value_name = "COLUMN")]
    due: String,
    /// Run the missing statements, each in its own commit; they never change or drop what exists
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    parts: Parts,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Names for the columns of the claim.
#[derive(clap::Args)]
#[command(next_help_heading = "Column names, if not the default")]
struct Parts {
    /// Time at which a worker claimed the row
    #[arg(long, value_name = "COLUMN")]
    claimed_at: Option<String>,
    /// Worker that claimed the row
    #[arg(long, value_name = "COLUMN")]
    claimed_by: Option<String>,
    /// Token of the claim
    #[arg(long, value_name = "COLUMN")]
    claim_token: Option<String>,
    /// Number of failed or lost attempts
    #[arg(long, value_name = "COLUMN")]
    attempts: Option<String>,
    /// Maximum number of attempts
    #[arg(long, value_name = "COLUMN")]
    max_attempts: Option<String>,
    /// Whether the row is done or retired
    #[arg(long, value_name = "COLUMN")]
    inactive: Option<String>,
    /// Last error
    #[arg(long, value_name = "COLUMN")]
    last_error: Option<String>,
    /// Time of the last error
    #[arg(long, value_name = "COLUMN")]
    last_error_at: Option<String>,
}

impl Args {
    fn columns(&self) -> Columns {
        let parts = &self.parts;
        let given = [
            (Part::ClaimedAt, &parts.claimed_at),
            (Part::ClaimedBy, &parts.claimed_by),
            (Part::ClaimToken, &parts.claim_token),
            (Part::Attempts, &parts.attempts),
            (Part::MaxAttempts, &parts.max_attempts),
            (Part::Inactive, &parts.inactive),
            (Part::LastError, &parts.last_error),
            (Part::LastErrorAt, &parts.last_error_at),
        ];
        let named = given
            .into_iter()
            .filter_map(|(part, name)| Some((part, name.as_ref()?)));
        named.fold(Columns::due(&self.due), |columns, (part, name)| {
            columns.with(part, name)
        })
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    ready: bool,
    applied: &'a [String],
    #[serde(flatten)]
    seen: &'a Inspection,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let url = place.url()?;
    if url.starts_with("sqlite:") {
        return Err(Advice::usage(
            "adopt works on PostgreSQL only",
            "enqueue a job for each row, in the transaction that writes the row",
        ));
    }
    let (rowlock, columns) = (Rowlock::open_in(url, place.schema())?, args.columns());
    let applied = match args.apply {
        true => Adopted::migrate(&rowlock, &args.table, &columns).await?,
        false => Vec::new(),
    };
    let seen = Adopted::inspect(&rowlock, &args.table, &columns).await?;
    if args.json {
        output::print_json(&Printed {
            ready: seen.is_ready(),
            applied: &applied,
            seen: &seen,
        })?;
    } else {
        output::print(&shown(&seen, &applied))?;
    }
    if seen.is_ready() {
        return Ok(ExitCode::SUCCESS);
    }
    let said = match seen.problems.len() {
        0 => format!("{} needs a migration; run it with --apply", seen.table),
        1 => format!("{} cannot be adopted as it is: 1 problem", seen.table),
        problems => format!("{} cannot be adopted as it is: {problems} problems", seen.table),
    };
    output::note(&format!("{RED}error:{PLAIN} {said}"));
    Ok(Exit::NotMet.into())
}

fn shown(seen: &Inspection, applied: &[String]) -> String {
    let mut rows = table(["part", "column", "type", ""]);
    if let Some((name, kind)) = &seen.key {
        rows.add_row([Cell::new("primary key"), Cell::new(name), Cell::new(kind), good("ok")]);
    }
    for column in &seen.columns {
        rows.add_row([
            Cell::new(column.part.as_str()),
            Cell::new(&column.column),
            Cell::new(column.has.as_deref().unwrap_or("")),
            state(column),
        ]);
    }
    for (part, index) in [("claims", &seen.claim_index), ("recovery", &seen.recovery_index)] {
        rows.add_row([
            Cell::new(format!("index for {part}")),
            Cell::new(index.as_deref().unwrap_or("")),
            Cell::new(""),
            if index.is_some() {
                good("ok")
            } else {
                missing("missing")
            },
        ]);
    }
    let mut said = text(&rows);
    for problem in &seen.problems {
        said += &format!("{RED}problem:{PLAIN} {problem}\n");
    }
    for statement in applied {
        said += &format!("applied {}\n", statement.lines().next().unwrap_or_default());
    }
    if seen.is_ready() {
        return said + &format!("{} is ready\n", seen.table);
    }
    if !seen.migration.is_empty() {
        said += &format!("\n{CYAN}-- missing statements{PLAIN}\n");
        for statement in &seen.migration {
            said += &format!("{statement};\n");
        }
    }
    said
}

fn state(column: &ColumnFound) -> Cell {
    match (&column.problem, &column.has) {
        (Some(_), _) => Cell::new("problem").fg(Color::Red),
        (None, Some(_)) => good("ok"),
        (None, None) => missing("missing"),
    }
}

fn good(said: &str) -> Cell {
    Cell::new(said).fg(Color::Green)
}

fn missing(said: &str) -> Cell {
    Cell::new(said).fg(Color::Yellow)
}
