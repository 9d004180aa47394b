//! `cargo xtask test`: format, lints, tests on SQLite and PostgreSQL, docs and a short kill run; `--long` runs what
//! must take long, `--all` both. The first failure ends the run.
//!
//! `suites.rs` says which suite belongs to which. Everything of the quick command has one profile and one set of
//! features, those of `cargo run`, so that a crate of others is compiled once; this is checked by cargo's own messages.
//! The tests learn of the servers from `ROWLOCK_TEST_PG_URLS` and log each conformance case to `ROWLOCK_CASE_LOG`; a
//! database that was there and logged none fails the run, so that a suite cannot go missing unseen. The closing lines
//! say where the time went, count tests and cases, and name what was left out, whatever the outcome.

pub(crate) mod compiled;
pub(crate) mod report;
pub(crate) mod suites;
pub(crate) mod times;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use self::compiled::Compiled;
use self::report::{Cases, Counts, Runner};
use crate::check::lint;
use crate::keeper::Keeper;
use crate::machine::extras::Extras;
use crate::machine::postgres::{self, Server};
use crate::machine::program::{self, Program};
use crate::step::{Step, has_nextest};

/// The next step for someone without PostgreSQL.
pub(crate) const HOW_TO_GET_POSTGRES: &str = "install its server, or name the folder of its programs in PG_BIN_DIRS";

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    allow_missing: bool,
    only_tests: bool,
    which: Which,
    /// Passed to the test runner as they are.
    filters: Vec<String>,
}

/// Which suites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Which {
    #[default]
    Quick,
    Long,
    All,
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
                "--long" => options.which = Which::Long,
                "--all" => options.which = Which::All,
                "--" => options.filters.extend(args.by_ref().map(|filter| (*filter).to_owned())),
                unknown => {
                    return Err(format!("test does not take `{unknown}`; filters go after `--`"));
                }
            }
        }
        Ok(options)
    }

    fn quick(&self) -> bool {
        self.which != Which::Long
    }

    fn long(&self) -> bool {
        self.which != Which::Quick
    }

    /// Whether more than some tests is wanted.
    fn whole(&self) -> bool {
        !self.only_tests && self.filters.is_empty()
    }
}

/// What a run has, beside its keeper.
struct Run<'a> {
    options: &'a Options,
    found: Vec<Server>,
    /// Programs, packages and emulators that one suite each needs, by variable.
    told: Vec<(&'static str, String)>,
    countable: bool,
    pooled: bool,
    /// Checks that turned out to be impossible here.
    missed: Vec<String>,
    /// The cases' log.
    log: String,
    counts: Counts,
}

/// Runs everything and prints the closing lines.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut found = if options.allow_missing {
        postgres::find()
    } else {
        postgres::find_or_install()
    }?;
    if !options.long() {
        // The quick command is for one server: the newest.
        found.drain(..found.len().saturating_sub(1));
    }
    let mut skipped = Vec::new();
    if found.is_empty() {
        if !options.allow_missing {
            bail!("no PostgreSQL server found; {HOW_TO_GET_POSTGRES}, or pass --allow-missing");
        }
        skipped.push("postgres (no server found)".to_owned());
    }
    let mut keeper = Keeper::start(&found, postgres::Use::Tests)?;
    for (label, url) in &keeper.servers {
        crate::note(&format!("{label} runs at {url}"));
    }
    let log = keeper.dir.join("cases.log");
    std::fs::write(&log, "").with_context(|| format!("could not make {}", log.display()))?;
    let mut run = Run {
        options,
        found,
        told: Vec::new(),
        countable: false,
        pooled: false,
        missed: Vec::new(),
        log: log.to_string_lossy().into_owned(),
        counts: Counts::default(),
    };
    run.prepare(&mut keeper, &mut skipped);
    let outcome = run.steps(&mut keeper);
    skipped.append(&mut run.missed);
    let text = std::fs::read_to_string(&log).with_context(|| format!("could not read {}", log.display()))?;
    let cases = Cases::count(&run.databases(&keeper), &text);
    // A filter may well leave a database out; a whole run may not.
    let outcome = match outcome {
        Ok(()) if options.filters.is_empty() => expect_cases(&cases),
        other => other,
    };
    print!("{}", keeper.times.table());
    drop(keeper);
    if let Err(error) = &outcome {
        crate::note(&format!("error: {error:#}"));
    }
    println!("{}", run.counts);
    println!("{}", cases.line(&skipped));
    if !options.long() {
        println!(
            "not run here, but by `cargo xtask test --long`: {}",
            suites::left_out().join(", ")
        );
    }
    Ok(if outcome.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Run<'_> {
    /// Finds, installs if it may, and starts what only the long suites need.
    fn prepare(&mut self, keeper: &mut Keeper, skipped: &mut Vec<String>) {
        if !self.options.long() {
            return;
        }
        let may_install = !self.options.allow_missing;
        self.told = [&program::REDIS, &program::PGBOUNCER]
            .map(|program| (program.var, path_of(program, may_install, skipped)))
            .into();
        let has = |(var, path): &(&str, String)| *var == program::PGBOUNCER.var && !path.is_empty();
        self.pooled = self.told.iter().any(has);
        self.countable = self.options.whole() && is_countable(may_install, skipped);
        let extras = Extras::get(keeper, may_install);
        self.told.extend(match self.options.allow_missing {
            true => extras.or_empty(skipped),
            false => extras.set,
        });
    }

    fn steps(&mut self, keeper: &mut Keeper) -> Result<()> {
        if self.options.quick() {
            self.quick(keeper)?;
        }
        if self.options.long() {
            self.long(keeper)?;
        }
        Ok(())
    }

    fn quick(&mut self, keeper: &mut Keeper) -> Result<()> {
        let packages = suites::quick_packages();
        if self.options.whole() {
            lint::format(keeper)?;
            lint::clippy(&packages, "clippy", keeper)?;
            let plain =
                Step::cargo("build --locked --message-format json-render-diagnostics").called("build of cargo run");
            let plain = Compiled::read(&plain.run_for_output(keeper)?);
            plain.expect_no_fail_points("rowlock")?;
            let tests = format!("test --no-run {packages} --locked --message-format json-render-diagnostics");
            let tests = Step::cargo(&tests)
                .called("build of the tests")
                .run_for_output(keeper)?;
            let tests = Compiled::read(&tests);
            tests.expect_none_again(&plain)?;
            crate::note(&format!(
                "the tests compiled {} crates of others beside those of cargo run, and none of those again",
                tests.anew()
            ));
        }
        let newest = keeper.newest();
        let filter = format!("not ({})", suites::long_filter());
        let skips: Vec<String> = suites::LONG_MODULES
            .iter()
            .map(|m| format!("--skip {}", m.path))
            .collect();
        self.tests(
            keeper,
            &Tests::of(&packages, "tests", &filter, &skips.join(" "), &newest),
        )?;
        self.doc_tests(keeper, &packages)?;
        if self.options.whole() {
            docs(keeper, &packages)?;
            crate::proof::kill_run(keeper)?;
        }
        Ok(())
    }

    fn long(&mut self, keeper: &mut Keeper) -> Result<()> {
        let (quick, long) = (suites::quick_packages(), suites::long_packages());
        let all = keeper.urls();
        let paths: Vec<String> = suites::LONG_MODULES.iter().map(|m| m.path.to_owned()).collect();
        let (filter, words) = (suites::long_filter(), paths.join(" "));
        let modules = Tests::of(&quick, "tests: long modules", &filter, &words, &all);
        self.tests(keeper, &modules)?;
        if self.pooled && !keeper.servers.is_empty() {
            let filter = format!("package(=proof) & test(/^{}::/)", suites::POOLED_CASES);
            let pooled = Tests::of(
                &quick,
                "tests: cases through PgBouncer",
                &filter,
                suites::POOLED_CASES,
                &all,
            );
            self.tests(keeper, &Tests { pooled: true, ..pooled })?;
        }
        let others = keeper.others();
        if !others.is_empty() {
            let filter = format!("package(=proof) & test(/^({})::/)", suites::POSTGRES_MODULES);
            let names = suites::POSTGRES_MODULES.replace('|', ":: ") + "::";
            self.tests(
                keeper,
                &Tests::of(&quick, "tests: other PostgreSQL versions", &filter, &names, &others),
            )?;
        }
        if self.options.whole() {
            lint::clippy(&long, "clippy of the long crates", keeper)?;
        }
        self.tests(keeper, &Tests::of(&long, "tests: long crates", "all()", "", &all))?;
        self.doc_tests(keeper, &long)?;
        if self.options.whole() {
            docs(keeper, &long)?;
            if let Some(why) = crate::check::api::guard(keeper)? {
                self.missed.push(format!("public API ({why})"));
            }
            crate::proof::smoke(keeper, &self.found, !self.options.allow_missing)?;
            if !self.found.is_empty() {
                crate::proof::mutants(keeper, &self.found)?;
            }
            if self.countable {
                crate::check::counts::guard(keeper)?;
            }
        }
        Ok(())
    }

    /// Runs tests with their environment.
    fn tests(&mut self, keeper: &mut Keeper, tests: &Tests<'_>) -> Result<()> {
        let (runner, args) = tests.command(has_nextest(), self.options.filters.is_empty());
        let step = Step::cargo(&args.join(" ")).called(tests.name);
        let step = match tests.filter {
            filter if runner == Runner::Nextest => step.args(&["-E".to_owned(), filter.to_owned()]),
            _ => step,
        };
        let step = step
            .args(&self.options.filters)
            .env("ROWLOCK_TEST_PG_URLS", tests.urls)
            .env("ROWLOCK_CASE_LOG", &self.log)
            .env("TMPDIR", &keeper.tmp())
            // A failure says what it saw; sixty frames of the runtime below it hide that in a log.
            .env("RUST_BACKTRACE", "0");
        // nextest has cargo build the examples with the tests.
        let step = match runner {
            Runner::Nextest => step.env("ROWLOCK_TEST_EXAMPLES", &examples()?),
            Runner::Cargo => step,
        };
        let step = match tests.pooled {
            true => step.env("ROWLOCK_TEST_POOLED", "1"),
            false => step,
        };
        let step = self.told.iter().fold(step, |step, (var, path)| step.env(var, path));
        step.run_counted(runner, keeper, &mut self.counts)
    }

    /// nextest runs none of them, and cargo cannot filter them with the others.
    fn doc_tests(&mut self, keeper: &mut Keeper, packages: &str) -> Result<()> {
        let Some(args) = doc_tests(packages, &self.options.filters) else {
            return Ok(());
        };
        Step::cargo(&args)
            .called("doc tests")
            .run_counted(Runner::Cargo, keeper, &mut self.counts)
    }

    /// The databases on which cases must run.
    fn databases(&self, keeper: &Keeper) -> Vec<String> {
        let servers: Vec<&String> = keeper.servers.iter().map(|(label, _)| label).collect();
        let mut databases = Vec::new();
        if self.options.quick() {
            databases.push("sqlite".to_owned());
            databases.extend(servers.last().map(|&label| label.clone()));
        }
        if self.options.long() {
            if self.pooled {
                databases.extend(servers.iter().map(|label| format!("{label} pooled")));
            }
            let others = servers.iter().rev().skip(1).map(|&label| label.clone());
            databases.extend(others);
        }
        databases
    }
}

/// One call of the test runner.
struct Tests<'a> {
    packages: &'a str,
    name: &'static str,
    /// For nextest.
    filter: &'a str,
    /// For cargo's own runner: names, or `--skip` and names.
    words: &'a str,
    urls: &'a str,
    pooled: bool,
}

impl<'a> Tests<'a> {
    fn of(packages: &'a str, name: &'static str, filter: &'a str, words: &'a str, urls: &'a str) -> Tests<'a> {
        Tests {
            packages,
            name,
            filter,
            words,
            urls,
            pooled: false,
        }
    }

    /// The runner and its arguments, to which filters can be added. nextest takes those of the caller beside `-E`;
    /// cargo's own runner takes either the caller's or ours.
    fn command(&self, nextest: bool, all: bool) -> (Runner, Vec<String>) {
        let packages = self.packages;
        match nextest {
            true => (
                Runner::Nextest,
                // A suite may well be empty: a crate without tests, or a filter that is for another suite.
                vec![format!(
                    "nextest run {packages} --locked --no-fail-fast --no-tests pass"
                )],
            ),
            false => {
                let words = if all { self.words } else { "" };
                let args = format!("test {packages} --lib --bins --tests --locked --no-fail-fast -- {words}");
                (Runner::Cargo, vec![args.trim_end().to_owned()])
            }
        }
    }
}

/// The arguments for cargo to run the doc tests of those crates that are libraries, unless only some tests are wanted.
fn doc_tests(packages: &str, filters: &[String]) -> Option<String> {
    let libraries = suites::libraries(packages);
    filters
        .is_empty()
        .then(|| format!("test --doc {libraries} --locked --no-fail-fast"))
}

/// Where cargo puts examples: beside this program.
fn examples() -> Result<String> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    Ok(own.with_file_name("examples").to_string_lossy().into_owned())
}

fn docs(keeper: &mut Keeper, packages: &str) -> Result<()> {
    Step::cargo(&format!("doc {packages} --no-deps --locked"))
        .called("docs")
        .flags("RUSTDOCFLAGS", "-D warnings")
        .run(keeper)
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
    let found = crate::check::counts::find_or_install(may_install);
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
                filters,
                ..Options::default()
            }
        );
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = Options::parse(&["--fast"]).unwrap_err();
        assert_eq!(error, "test does not take `--fast`; filters go after `--`");
    }

    #[test]
    fn quick_is_the_default_and_all_is_both() {
        let which = |args: &[&str]| Options::parse(args).map(|options| (options.quick(), options.long()));
        assert_eq!(which(&[]), Ok((true, false)));
        assert_eq!(which(&["--long"]), Ok((false, true)));
        assert_eq!(which(&["--all"]), Ok((true, true)));
    }

    #[test]
    fn doc_tests_run_with_either_runner_unless_filtered() {
        let args = doc_tests("--package proof --package xtask", &[]).unwrap();
        assert_eq!(args, "test --doc --package proof --locked --no-fail-fast");
        assert_eq!(doc_tests("--package proof", &["claim".to_owned()]), None);
    }

    #[test]
    fn without_nextest_the_same_suites_are_chosen_by_name() {
        let tests = Tests::of("--package proof", "tests", "all()", "--skip failover::", "");
        let line = |nextest, all| tests.command(nextest, all).1.join(" ");
        assert!(line(true, true).starts_with("nextest run --package proof"));
        assert!(line(false, true).ends_with("-- --skip failover::"));
        assert!(line(false, false).ends_with(" --"));
    }
}
