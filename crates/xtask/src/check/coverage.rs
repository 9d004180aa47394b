//! `cargo xtask coverage`: how much of each file the tests reach. The numbers are information, not a goal, so
//! nothing is compared with a threshold.
//!
//! `cargo-llvm-cov` does the work and is not part of a toolchain. Without it this command says how to get it; only
//! `--install` installs anything.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::keeper::Keeper;
use crate::machine::postgres::{self, Use};
use crate::step::Step;

/// The library, its macros and the axum layer, run by their own tests and by the suites of `proof`.
const RUN: &str = "llvm-cov --locked --no-fail-fast --ignore-run-fail --package rowlock --package rowlock-macros \
                   --package rowlock-axum --package proof --ignore-filename-regex crates/(proof|xtask)/ --summary-only";
const INSTALL: &str = "install --locked cargo-llvm-cov";
const MISSING: &str = "cargo-llvm-cov is not installed, so coverage was not measured; \
                       `cargo xtask coverage --install` installs it and the llvm-tools component";

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    if_possible: bool,
    install: bool,
}

impl Options {
    /// Reads the arguments after `coverage`.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        for arg in args {
            match *arg {
                "--if-possible" => options.if_possible = true,
                "--install" => options.install = true,
                unknown => return Err(format!("coverage does not take `{unknown}`")),
            }
        }
        Ok(options)
    }
}

/// Measures, or says what is missing.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !is_installed() && !options.install {
        println!("{MISSING}");
        return Ok(without(options));
    }
    let found = postgres::find()?;
    let mut keeper = Keeper::start(&found, Use::Tests)?;
    if !is_installed() {
        Step::cargo(INSTALL).run(&mut keeper)?;
    }
    // With this set, the program adds the toolchain's llvm-tools without a question.
    let setup = if options.install { "yes" } else { "no" };
    let step = Step::cargo(RUN)
        .env("CARGO_LLVM_COV_SETUP", setup)
        .env("ROWLOCK_TEST_PG_URLS", &keeper.urls());
    Ok(ExitCode::from(step.run_for_code(&mut keeper)?))
}

/// The exit code of a run that could measure nothing.
fn without(options: &Options) -> ExitCode {
    if options.if_possible {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn is_installed() -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let probe = Command::new(cargo)
        .args(["llvm-cov", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_a_failure_unless_the_caller_says_otherwise() {
        let code = |args: &[&str]| format!("{:?}", without(&Options::parse(args).unwrap()));
        assert_eq!(code(&[]), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(code(&["--if-possible"]), format!("{:?}", ExitCode::SUCCESS));
    }

    #[test]
    fn an_unknown_option_of_coverage_is_refused_by_name() {
        assert_eq!(
            Options::parse(&["--html"]).unwrap_err(),
            "coverage does not take `--html`"
        );
    }
}
