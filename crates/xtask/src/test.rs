//! `cargo xtask test`: format, lints, tests on every database, docs, the short proof, counts, in that order; the first
//! failure ends the run.
//!
//! Lints and tests are compiled with the cfg that turns on the named fail points. The docs are not:
//! that step is the one that compiles the library as its users get it. The tests learn of the
//! servers from `ROWLOCK_TEST_PG_URLS` and log each conformance case to `ROWLOCK_CASE_LOG`; a
//! database that was there and logged none fails the run, so that a suite cannot go missing unseen.
//! The last line of a run counts the cases, whatever the outcome.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::extras::Extras;
use crate::keeper::Keeper;
use crate::postgres;
use crate::program::{self, Program};
use crate::report::{Cases, Counts, Runner};
use crate::step::{Step, has_nextest};

/// The next step for someone without PostgreSQL.
pub(crate) const HOW_TO_GET_POSTGRES: &str = "install its server, or name the folder of its programs in PG_BIN_DIRS";

/// Turns on the named fail points.
pub(crate) const FAULTS: &str = "--cfg rowlock_faults";

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    allow_missing: bool,
    only_tests: bool,
    /// Passed to the test runner as they are.
    filters: Vec<String>,
}

impl Options {
    /// Reads the arguments after `test`; the error names the one it does not know.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--allow-missing" => options.allow_missing = true,
                "--only-tests" => options.only_tests = true,
                "--" => options.filters.extend(args.by_ref().map(|filter| (*filter).to_owned())),
                unknown => {
                    return Err(format!("test does not take `{unknown}`; filters go after `--`"));
                }
            }
        }
        Ok(options)
    }
}

/// Runs everything and prints the closing lines.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let found = if options.allow_missing {
        postgres::find()
    } else {
        postgres::find_or_install()
    }?;
    let mut skipped = Vec::new();
    if found.is_empty() {
        if !options.allow_missing {
            bail!("no PostgreSQL server found; {HOW_TO_GET_POSTGRES}, or pass --allow-missing");
        }
        skipped.push("postgres (no server found)".to_owned());
    }
    let programs = [&program::REDIS, &program::PGBOUNCER]
        .map(|program| (program.var, path_of(program, !options.allow_missing, &mut skipped)));
    let countable = !options.only_tests && is_countable(!options.allow_missing, &mut skipped);
    let mut keeper = Keeper::start(&found, postgres::Use::Tests)?;
    let pooled = programs
        .iter()
        .any(|(var, path)| *var == program::PGBOUNCER.var && !path.is_empty());
    let mut databases = vec!["sqlite".to_owned()];
    for (label, url) in &keeper.servers {
        crate::note(&format!("{label} runs at {url}"));
        databases.push(label.clone());
        if pooled {
            databases.push(format!("{label} pooled"));
        }
    }
    let extras = Extras::get(&mut keeper, !options.allow_missing);
    let extras = match options.allow_missing {
        true => extras.or_empty(&mut skipped),
        false => extras.set,
    };
    let told: Vec<(&str, String)> = programs.into_iter().chain(extras).collect();
    let log = keeper.dir.join("cases.log");
    std::fs::write(&log, "").with_context(|| format!("could not make {}", log.display()))?;

    let mut counts = Counts::default();
    let outcome = steps(options, &mut keeper, (&log, &told), &mut counts);
    let outcome = match outcome {
        Ok(()) if !options.only_tests && options.filters.is_empty() => {
            crate::proof::smoke(&mut keeper, &found, !options.allow_missing)
        }
        other => other,
    };
    let outcome = match outcome {
        Ok(()) if countable => crate::counts::guard(&mut keeper),
        other => other,
    };
    let text = std::fs::read_to_string(&log).with_context(|| format!("could not read {}", log.display()))?;
    let cases = Cases::count(&databases, &text);
    // A filter may well leave a database out; a whole run may not.
    let outcome = match outcome {
        Ok(()) if options.filters.is_empty() => expect_cases(&cases),
        other => other,
    };
    drop(keeper);
    if let Err(error) = &outcome {
        crate::note(&format!("error: {error:#}"));
    }
    println!("{counts}");
    println!("{}", cases.line(&skipped));
    Ok(if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Where a program is that one suite needs; empty, and said, when it is nowhere.
fn path_of(program: &Program, may_install: bool, skipped: &mut Vec<String>) -> String {
    match program.find_or_install(may_install) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(error) => {
            crate::note(&format!("the {} suite is skipped: {error:#}", program.name));
            skipped.push(format!("{0} (no {0})", program.name));
            String::new()
        }
    }
}

/// Whether instructions can be counted on this machine; says so if not.
fn is_countable(may_install: bool, skipped: &mut Vec<String>) -> bool {
    let found = crate::counts::find_or_install(may_install);
    if let Err(error) = &found {
        crate::note(&format!("instructions are not counted: {error:#}"));
        skipped.push(format!("counts ({error})"));
    }
    found.is_ok()
}

fn expect_cases(cases: &Cases) -> Result<()> {
    let empty = cases.empty();
    if !empty.is_empty() {
        bail!(
            "no case ran on {}; its suite is missing or does not write to ROWLOCK_CASE_LOG",
            empty.join(", ")
        );
    }
    Ok(())
}

/// `told` is what the tests are told of: where to log cases, and the programs, packages and emulators that one suite each
/// needs, by variable.
fn steps(options: &Options, keeper: &mut Keeper, told: (&Path, &[(&str, String)]), counts: &mut Counts) -> Result<()> {
    if !options.only_tests {
        Step::cargo("fmt --all --check").run(keeper)?;
        Step::cargo("clippy --workspace --all-targets --locked -- -D warnings")
            .flags("RUSTFLAGS", FAULTS)
            .run(keeper)?;
    }
    for (runner, args) in test_commands(has_nextest(), options.filters.is_empty()) {
        let step = Step::cargo(args)
            .args(&options.filters)
            .flags("RUSTFLAGS", FAULTS)
            .env("ROWLOCK_TEST_PG_URLS", &keeper.urls())
            .env("ROWLOCK_CASE_LOG", &told.0.to_string_lossy())
            // A failure says what it saw; sixty frames of the runtime below it hide that in a log.
            .env("RUST_BACKTRACE", "0");
        let step = told.1.iter().fold(step, |step, (var, path)| step.env(var, path));
        step.run_counted(runner, keeper, counts)?;
    }
    if !options.only_tests {
        Step::cargo("doc --workspace --no-deps --locked")
            .flags("RUSTDOCFLAGS", "-D warnings")
            .run(keeper)?;
    }
    Ok(())
}

/// The cargo commands that run the tests, to which filters can be added unless `all` are wanted.
/// nextest does not run doc tests; cargo does, and cannot filter them with the others.
fn test_commands(nextest: bool, all: bool) -> Vec<(Runner, &'static str)> {
    let main = (Runner::Nextest, "nextest run --workspace --locked --no-fail-fast");
    let cargo = |args| (Runner::Cargo, args);
    match (nextest, all) {
        (true, true) => vec![main, cargo("test --workspace --doc --locked --no-fail-fast")],
        (true, false) => vec![main],
        (false, true) => vec![cargo("test --workspace --locked --no-fail-fast")],
        (false, false) => {
            vec![cargo(
                "test --workspace --lib --bins --tests --locked --no-fail-fast --",
            )]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_after_the_dashes_is_a_filter() {
        let options = Options::parse(&["--only-tests", "--", "claim", "--allow-missing"]).unwrap();
        let filters = vec!["claim".to_owned(), "--allow-missing".to_owned()];
        assert_eq!(
            options,
            Options {
                only_tests: true,
                allow_missing: false,
                filters
            }
        );
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = Options::parse(&["--fast"]).unwrap_err();
        assert_eq!(error, "test does not take `--fast`; filters go after `--`");
    }

    #[test]
    fn doc_tests_run_with_either_runner_unless_filtered() {
        let lines = |nextest, all| {
            let commands = test_commands(nextest, all);
            commands.iter().map(|(_, args)| *args).collect::<Vec<_>>().join("; ")
        };
        assert!(lines(true, true).contains("; test --workspace --doc "));
        assert!(!lines(false, true).contains("--tests"));
        assert!(!lines(true, false).contains("--doc"));
        assert!(lines(false, false).contains("--lib --bins --tests"));
    }
}
