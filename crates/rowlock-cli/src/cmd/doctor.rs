//! `rowlock doctor`: what is or will be in the way of jobs, and the command that mends it.
//!
//! The exit code is for scripts: 3 when something fails, 0 also with warnings.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::{Finding, Health};
use serde::Serialize;

use super::Place;
use crate::{
    exit::Exit,
    output::{self, CYAN, PLAIN, RED, table, text},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Printed<'a> {
    healthy: bool,
    findings: &'a [Finding],
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let findings = place.checked().await?.observe().doctor().await?;
    let failing = findings.iter().filter(|f| f.health == Health::Fail).count();
    match args.json {
        true => output::print_json(&Printed {
            healthy: failing == 0,
            findings: &findings,
        })?,
        false => output::print(&format!("{}{}", seen(&findings), mends(&findings)))?,
    }
    if failing == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let verb = if failing == 1 { "fails" } else { "fail" };
    output::note(&format!(
        "{RED}error:{PLAIN} of {} checks {failing} {verb}",
        findings.len()
    ));
    Ok(Exit::NotMet.into())
}

fn seen(findings: &[Finding]) -> String {
    let mut rows = table(["check", "", "seen"]);
    for finding in findings {
        rows.add_row([
            Cell::new(finding.check),
            health(finding.health),
            Cell::new(&finding.said),
        ]);
    }
    text(&rows)
}

fn health(health: Health) -> Cell {
    let colour = match health {
        Health::Ok => Color::Green,
        Health::Fail => Color::Red,
        _ => Color::Yellow,
    };
    Cell::new(health.as_str()).fg(colour)
}

/// What to do, one line for each that is not as it should be.
fn mends(findings: &[Finding]) -> String {
    let mut said = String::new();
    for finding in findings {
        if let Some(mend) = &finding.mend {
            said += &format!("{CYAN}try:  {PLAIN} {}: {mend}\n", finding.check);
        }
    }
    match said.is_empty() {
        true => said,
        false => format!("\n{said}"),
    }
}
