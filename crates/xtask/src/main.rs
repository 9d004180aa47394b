//! The workspace's own commands, called as `cargo xtask <command>`.
//!
//! `test` is what CI runs: it finds every PostgreSQL on the machine, starts a throw-away server of each, and runs the
//! checks against them. `lint`, `docs`, `features`, `coverage`, `api`, `counts` and `claims` are single checks.
//! `servers` starts the same servers for work by hand. `bench` starts one server sized for throughput and runs the
//! benchmark against it. `proof` runs the chaos, which starts its own servers. `release` packages what is published.
//! This crate is compiled before anything else, so each dependency is a wait before every first run. It has anyhow, and
//! serde_json for the output of `cargo metadata`.
//!
//! Invariant: whatever a command starts ends with it, however it ends. See `keeper.rs`, which alone
//! owns servers and temporary folders.

mod bench;
mod check;
mod command;
mod keeper;
mod machine;
mod proof;
mod release;
mod servers;
mod step;
mod test;
mod workspace;

#[cfg(test)]
mod public;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::command::{Command, HELP};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = match Command::parse(&words(&args)) {
        Ok(command) => command,
        Err(error) => return refuse(&error),
    };
    let result = match command {
        Command::Test(options) => test::run(&options),
        Command::Lint(options) => check::lint::run(&options),
        Command::Docs => check::docs::run(),
        Command::Features => check::features::run(),
        Command::Coverage(options) => check::coverage::run(&options),
        Command::Release(options) => release::run(&options),
        Command::Api(options) => check::api::run(&options),
        Command::Counts(options) => check::counts::run(&options),
        Command::Claims(options) => check::claims::run(&options),
        Command::Servers => servers::run(),
        Command::Bench(args) => bench::run(&words(&args)),
        Command::Proof(args) => proof::run(&words(&args)),
        Command::Keep(args) => keeper::keep(&words(&args)),
        Command::Help => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

fn refuse(reason: &dyn Display) -> ExitCode {
    note(&format!("error: {reason}\n\n{HELP}"));
    ExitCode::from(2)
}

/// Prints a line on standard error, and goes on when nobody reads it any more: cleaning up must not
/// stop at a closed terminal.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", line.trim_end());
}
