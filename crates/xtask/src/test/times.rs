//! Where the time of a run went: by step, and of the tests by suite.
//!
//! The lines that nextest prints of each test name its suite; `cargo test` prints none. All of it is pure.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What took how long.
#[derive(Debug, Default)]
pub(crate) struct Times {
    steps: Vec<(String, Duration)>,
    /// Tests and the seconds they took, by suite.
    suites: BTreeMap<String, (usize, f64)>,
    tests: Vec<(f64, String)>,
}

/// How many of the slowest tests are shown.
const SLOWEST: usize = 20;

impl Times {
    pub(crate) fn step(&mut self, name: &str, took: Duration) {
        self.steps.push((name.to_owned(), took));
    }

    /// Adds a line of nextest if it tells of one test: `PASS [   0.512s] ( 1/900) proof::main races::claim::…`.
    pub(crate) fn add_line(&mut self, line: &str) {
        let line = line.trim();
        let Some((verdict, rest)) = line.split_once(" [") else {
            return;
        };
        if !["PASS", "FAIL", "FLAKY", "LEAK", "TIMEOUT"].contains(&verdict.trim()) {
            return;
        }
        let Some((seconds, rest)) = rest.split_once("s] ") else {
            return;
        };
        let Ok(seconds) = seconds.trim().parse::<f64>() else {
            return;
        };
        let rest = match rest
            .trim_start()
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
        {
            Some((_, rest)) => rest.trim_start(),
            None => rest.trim_start(),
        };
        let Some((program, test)) = rest.split_once(' ') else {
            return;
        };
        let suite = match program.split_once("::main") {
            Some((package, _)) => format!("{package} {}", test.split("::").next().unwrap_or(test)),
            None => format!("{program} (unit tests)"),
        };
        let of = self.suites.entry(suite).or_default();
        *of = (of.0 + 1, of.1 + seconds);
        self.tests.push((seconds, rest.to_owned()));
    }

    pub(crate) fn add(&mut self, other: Times) {
        self.steps.extend(other.steps);
        for (suite, (tests, seconds)) in other.suites {
            let of = self.suites.entry(suite).or_default();
            *of = (of.0 + tests, of.1 + seconds);
        }
        self.tests.extend(other.tests);
    }

    /// The closing tables.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from("where the time went\n");
        let total: Duration = self.steps.iter().map(|(_, took)| *took).sum();
        for (name, took) in &self.steps {
            let _ = writeln!(text, "  {:>7.1} s  {name}", took.as_secs_f64());
        }
        let _ = writeln!(text, "  {:>7.1} s  in all", total.as_secs_f64());
        if self.suites.is_empty() {
            return text;
        }
        text.push_str("seconds of tests by suite; several run at the same time\n");
        let mut suites: Vec<_> = self.suites.iter().collect();
        suites.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
        for (suite, (tests, seconds)) in suites {
            let _ = writeln!(text, "  {seconds:>7.1} s  {suite}, {tests} tests");
        }
        text.push_str("the slowest tests\n");
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (seconds, test) in tests.into_iter().take(SLOWEST) {
            let _ = writeln!(text, "  {seconds:>7.1} s  {test}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_add_up_by_suite_and_the_slowest_tests_come_first() {
        let mut times = Times::default();
        times.step("tests", Duration::from_millis(2500));
        times.step("docs", Duration::from_millis(500));
        for line in [
            "        PASS [   0.500s] ( 1/4) proof::main races::claim::tests::two_claims",
            "        PASS [   1.250s] proof::main races::settle::tests::late",
            "        FAIL [   3.000s] (3/4) rowlock-cli::main work::x",
            "        PASS [   0.010s] (4/4) rowlock state::tests::done",
            "        SLOW [> 60.000s] proof::main races::claim::tests::two_claims",
            "     Summary [   4.700s] 4 tests run: 3 passed, 1 failed, 0 skipped",
        ] {
            times.add_line(line);
        }
        let table = times.table();
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        assert_eq!(lines[1..4], ["2.5 s  tests", "0.5 s  docs", "3.0 s  in all"]);
        assert!(lines.contains(&"1.8 s  proof races, 2 tests"), "{table}");
        assert!(lines.contains(&"0.0 s  rowlock (unit tests), 1 tests"), "{table}");
        let slowest = lines.iter().position(|line| *line == "the slowest tests").unwrap();
        assert_eq!(lines[slowest + 1], "3.0 s  rowlock-cli::main work::x");
    }

    #[test]
    fn without_a_line_of_each_test_there_are_only_steps() {
        let mut times = Times::default();
        times.step("tests", Duration::from_secs(1));
        assert!(!times.table().contains("by suite"));
    }
}
