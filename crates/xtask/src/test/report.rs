//! What a run tells at its end: how many tests, how many cases on which database, which suites were
//! skipped.
//!
//! Tests are counted from the closing lines of the runner. Cases are counted from the log that the
//! tests write, a line `<database>\t<case>` for each; a case that ran twice on a database is one
//! case. All of it is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Whose closing lines to read. One runner can print those of another: nextest shows the output of
/// a failed test, which ends like that of `cargo test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    Cargo,
    Nextest,
}

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Adds a line of output, without colours, if it is a closing line of the runner.
    pub(crate) fn add_line(&mut self, runner: Runner, line: &str) {
        let line = line.trim();
        let (prefix, before, separator) = match runner {
            // test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …
            Runner::Cargo => ("test result: ", ". ", ';'),
            // Summary [   1.2s] 5 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 2 skipped
            Runner::Nextest => ("Summary [", " run: ", ','),
        };
        if let Some((_, parts)) = line.strip_prefix(prefix).and_then(|rest| rest.split_once(before)) {
            self.add_parts(without_brackets(parts).split(separator));
        }
    }

    fn add_parts<'a>(&mut self, parts: impl Iterator<Item = &'a str>) {
        for part in parts {
            let Some((number, outcome)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match outcome.trim() {
                "passed" => self.passed += number,
                "skipped" | "ignored" | "filtered out" => self.skipped += number,
                "measured" => {}
                // failed, exec failed, timed out: nextest names each way to fail.
                _ => self.failed += number,
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The cases that ran, by database.
#[derive(Debug)]
pub(crate) struct Cases {
    /// In the order of the closing line: those expected, then any other the log names.
    databases: Vec<(String, usize)>,
}

impl Cases {
    /// Reads the log; every database in `expected` is counted, also one the log does not name.
    pub(crate) fn count(expected: &[String], log: &str) -> Cases {
        let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (database, case) in log.lines().filter_map(|line| line.split_once('\t')) {
            seen.entry(database).or_default().insert(case);
        }
        let mut databases = Vec::new();
        for database in expected {
            let cases = seen.remove(database.as_str()).unwrap_or_default();
            databases.push((database.clone(), cases.len()));
        }
        databases.extend(
            seen.into_iter()
                .map(|(database, cases)| (database.to_owned(), cases.len())),
        );
        Cases { databases }
    }

    /// Databases that were there and on which nothing ran.
    pub(crate) fn empty(&self) -> Vec<&str> {
        self.databases
            .iter()
            .filter(|(_, cases)| *cases == 0)
            .map(|(database, _)| database.as_str())
            .collect()
    }

    /// The last line of a run.
    pub(crate) fn line(&self, skipped: &[String]) -> String {
        let parts: Vec<String> = self
            .databases
            .iter()
            .map(|(database, cases)| format!("{database} {cases}"))
            .collect();
        let skipped = if skipped.is_empty() {
            "none".to_owned()
        } else {
            skipped.join(", ")
        };
        format!("cases: {}; suites skipped: {skipped}", parts.join(", "))
    }
}

/// Takes out terminal colours: escape, `[`, and all up to a letter.
pub(crate) fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0_u32;
    let mut kept = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(char),
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(runner: Runner, lines: &[&str]) -> String {
        let mut counts = Counts::default();
        lines
            .iter()
            .for_each(|line| counts.add_line(runner, &without_colour(line)));
        counts.to_string()
    }

    #[test]
    fn the_closing_lines_of_cargo_test_add_up() {
        let one = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; \
                   finished in 0.00s";
        let two = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            counts(Runner::Cargo, &[one, "running 3 tests", two]),
            "4 passed, 2 failed, 3 skipped"
        );
    }

    #[test]
    fn every_way_to_fail_in_nextest_is_a_failure() {
        let line = "  Summary [   1.234s] 9 tests run: 5 passed (1 slow, 1 flaky), 2 failed, \
                    2 timed out, 4 skipped";
        assert_eq!(counts(Runner::Nextest, &[line]), "5 passed, 4 failed, 4 skipped");
        assert_eq!(
            counts(Runner::Nextest, &["Summary [ 1s] 1/2 tests run: 1 passed, 0 skipped"]),
            "1 passed, 0 failed, 0 skipped"
        );
    }

    #[test]
    fn colours_do_not_hide_a_closing_line() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m1\u{1b}[0m test run: \
                    \u{1b}[1m1\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m skipped";
        assert_eq!(counts(Runner::Nextest, &[line]), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn other_output_is_not_counted() {
        let none = "0 passed, 0 failed, 0 skipped";
        assert_eq!(counts(Runner::Cargo, &["3 passed", "test result: odd"]), none);
        let shown = "    test result: FAILED. 0 passed; 1 failed; 0 ignored";
        assert_eq!(counts(Runner::Nextest, &["Summary of things", shown]), none);
    }

    #[test]
    fn the_last_line_counts_each_case_once_on_each_database() {
        let log = "sqlite\tclaim_twice\npg15\tclaim_twice\nsqlite\tsettle_late\nsqlite\tclaim_twice\n";
        let cases = Cases::count(&["sqlite".to_owned(), "pg15".to_owned()], log);
        assert_eq!(cases.line(&[]), "cases: sqlite 2, pg15 1; suites skipped: none");
        assert!(cases.empty().is_empty());
    }

    #[test]
    fn a_database_on_which_nothing_ran_is_named() {
        let cases = Cases::count(
            &["sqlite".to_owned(), "pg15".to_owned()],
            "sqlite\ta\npg9\ta\nnonsense\n",
        );
        assert_eq!(cases.empty(), ["pg15"]);
        let skipped = ["postgres (no server found)".to_owned()];
        assert_eq!(
            cases.line(&skipped),
            "cases: sqlite 1, pg15 0, pg9 1; suites skipped: postgres (no server found)"
        );
    }
}
