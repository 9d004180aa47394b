//! The bench: our benchmarks, the ceilings and the peers, interleaved in one run.
//!
//! Started by `cargo xtask bench`, which owns the server. Every program measured, ours among them, is a separate
//! process that speaks one protocol (`verb.rs`) against a database made fresh for it (`place.rs`). A *case* is one
//! thing run and measured. A benchmark (S1 to S13; `lane` in the code) judges one or more cases. Samples are written
//! down as they come, and everything printed at the end is computed from them.

mod against;
mod args;
mod bench;
mod case;
mod cpu;
mod lanes;
mod machine;
mod picture;
mod place;
mod programs;
mod progress;
mod report;
mod run;
mod sample;
mod server;
mod sizes;
mod stats;
mod verb;
mod verdict;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::args::Args;
use crate::bench::Bench;
use crate::run::Run;

/// A job's effect was lost or doubled somewhere in the run.
const VIOLATED: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = tokio::select! {
        outcome = run(&args) => outcome,
        code = interrupted() => {
            verb::end_all();
            return ExitCode::from(code);
        }
    };
    verb::end_all();
    match outcome {
        Ok(violations) if violations.is_empty() => ExitCode::SUCCESS,
        Ok(violations) => {
            for violation in violations {
                eprintln!("VIOLATION: {violation}");
            }
            ExitCode::from(VIOLATED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<Vec<String>> {
    let run = match &args.redraw {
        Some(dir) => Run::read(dir, args.json)?,
        None => {
            let mut bench = Bench::prepare(args).await?;
            // What is measured before a crash can then be drawn all the same.
            report::write_summary(&bench.run)?;
            lanes::run(&mut bench).await;
            report::save(&bench.run, "machine.txt", &machine::describe(&bench).await)?;
            bench.run
        }
    };
    let said = match &args.against {
        Some(_) => against::write(&run),
        None => report::write(&run),
    };
    print!("{}", said.context("could not write the report")?);
    Ok(run.violations)
}

/// Waits for ctrl-c or a request to end, and says what the exit code is then.
async fn interrupted() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => 130,
        _ = terminate.recv() => 143,
    }
}
