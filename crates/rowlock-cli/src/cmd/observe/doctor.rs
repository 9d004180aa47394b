//! `rowlock doctor`: checks everything that can stop jobs from running, and suggests a fix for each problem.
//!
//! The exit code is for scripts: 3 if a check fails, 0 if there are only warnings.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, Color};
use rowlock::observe::{Finding, Health};
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

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    healthy: bool,
    findings: Vec<Check<'a>>,
}

#[derive(Serialize)]
struct Check<'a> {
    check: &'a str,
    health: Health,
    detail: &'a str,
    fix: Option<&'a str>,
}

impl<'a> Check<'a> {
    fn of(finding: &'a Finding) -> Check<'a> {
        Check {
            check: finding.check,
            health: finding.health,
            detail: &finding.said,
            fix: finding.mend.as_deref(),
        }
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let findings = place.checked().await?.observe().doctor().await?;
    let failing = findings.iter().filter(|f| f.health == Health::Fail).count();
    match args.json {
        true => output::print_json(&Printed {
            healthy: failing == 0,
            findings: findings.iter().map(Check::of).collect(),
        })?,
        false => output::print(&format!("{}{}", seen(&findings), fixes(&findings)))?,
    }
    if failing == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let verb = if failing == 1 { "fails" } else { "fail" };
    output::note(&format!(
        "{RED}error:{PLAIN} {failing} of {} checks {verb}",
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

/// The fix for each problem, one line each.
fn fixes(findings: &[Finding]) -> String {
    let mut said = String::new();
    for finding in findings {
        if let Some(fix) = &finding.mend {
            said += &format!("{CYAN}try:  {PLAIN} {}: {fix}\n", finding.check);
        }
    }
    match said.is_empty() {
        true => said,
        false => format!("\n{said}"),
    }
}
