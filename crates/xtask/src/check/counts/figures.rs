//! Figures by name, their file, and what two sets of them say about each other. All of it is pure.
//!
//! A line of the file is a name and a number with a space between; `#` begins a line for people.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};

const HEAD: &str = "\
# Instructions for a batch of a hundred jobs on x86_64, written by `cargo xtask counts --accept`.
# `cargo xtask test` fails when one of them grows by more than 15 %.
";

/// Instructions, by database and part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures(BTreeMap<String, u64>);

impl Figures {
    pub(super) fn parse(text: &str) -> Result<Figures> {
        let mut figures = Figures::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let number = line
                .rsplit_once(' ')
                .and_then(|(name, n)| Some((name, n.parse().ok()?)));
            let (name, number) = number.with_context(|| format!("`{line}` is not a name and a number"))?;
            figures.set(name, number);
        }
        Ok(figures)
    }

    fn set(&mut self, name: &str, number: u64) {
        self.0.insert(name.to_owned(), number);
    }

    /// Takes down another round of a part: the least of them is its figure.
    pub(super) fn add_round(&mut self, name: &str, number: u64) {
        let least = self.0.entry(name.to_owned()).or_insert(number);
        *least = number.min(*least);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// These figures, replaced by those of `newer` where it has them. A database that was not there keeps its figures.
    pub(super) fn with(mut self, newer: &Figures) -> Figures {
        let database = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
        let counted: Vec<String> = newer.0.keys().map(|name| database(name)).collect();
        self.0.retain(|name, _| !counted.contains(&database(name)));
        self.0.extend(newer.0.clone());
        self
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}")?;
        self.0
            .iter()
            .try_for_each(|(name, number)| writeln!(f, "{name} {number}"))
    }
}

/// What callgrind counted in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Our own code, the driver's and what they call, without [`Cost::engine`].
    pub(super) ours: u64,
    /// SQLite at work on statements, which for PostgreSQL is the server's.
    pub(super) engine: u64,
}

impl Cost {
    /// Reads a dump of callgrind's; `None` for one that was not written at the end of a part.
    pub(super) fn read(dump: &str) -> Option<Cost> {
        let mut lines = dump.lines();
        lines.find(|line| line.starts_with("desc: Trigger: --dump-before=counts::counted_to"))?;
        let total: u64 = lines
            .clone()
            .find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())?;
        let engine = inclusive(lines, "sqlite3_step");
        Some(Cost {
            ours: total.saturating_sub(engine),
            engine,
        })
    }
}

/// The cost of all calls of a function with what it calls in turn. A callee is written as `cfn=(number) name`, and
/// without the name from the second time on; then come how often it was called, and a line with the cost of these
/// calls.
fn inclusive<'a>(lines: impl Iterator<Item = &'a str>, function: &str) -> u64 {
    let (mut number, mut cost) = (None, 0);
    let (mut called, mut next) = (false, false);
    for line in lines {
        if let Some((id, name)) = line.split_once("fn=").and_then(|(_, callee)| callee.split_once(')')) {
            if name.trim() == function {
                number = Some(id);
            }
            called = line.starts_with("cfn=") && number == Some(id);
        } else if line.starts_with("calls=") {
            next = called;
        } else if std::mem::take(&mut next) {
            let last = line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
            cost += last.unwrap_or(0);
        }
    }
    cost
}

/// What was counted, beside what was accepted.
#[derive(Debug)]
pub(super) struct Comparison {
    rows: Vec<(String, u64, Option<u64>)>,
    tolerance_percent: u64,
}

impl Comparison {
    pub(super) fn of(accepted: &Figures, counted: &Figures, tolerance_percent: u64) -> Comparison {
        let row = |(name, now): (&String, &u64)| (name.clone(), *now, accepted.0.get(name).copied());
        Comparison {
            rows: counted.0.iter().map(row).collect(),
            tolerance_percent,
        }
    }

    /// One for each figure that fails the run.
    pub(super) fn complaints(&self) -> Vec<String> {
        let complaint = |(name, now, accepted): &(String, u64, Option<u64>)| match accepted {
            None => Some(format!("{name} has no accepted figure")),
            Some(accepted) if self.too_many(*now, *accepted) => {
                let (percent, most) = (change_percent(*now, *accepted), self.tolerance_percent);
                let grown =
                    format!("{name} takes {percent:+.1} % instructions ({accepted} to {now}, at most +{most} %)");
                Some(grown)
            }
            // A part that is no longer counted would look like this, and what it won could be lost again unseen.
            Some(accepted) if now.saturating_mul(2) < *accepted => Some(format!(
                "{name} takes less than half its instructions ({accepted} to {now})"
            )),
            Some(_) => None,
        };
        self.rows.iter().filter_map(complaint).collect()
    }

    fn too_many(&self, now: u64, accepted: u64) -> bool {
        u128::from(now) * 100 > u128::from(accepted) * u128::from(100 + self.tolerance_percent)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24} {:>12} {:>12}", "instructions", "accepted", "now")?;
        for (name, now, accepted) in &self.rows {
            match accepted {
                Some(accepted) => {
                    let percent = change_percent(*now, *accepted);
                    writeln!(f, "{name:<24} {accepted:>12} {now:>12} {percent:>+7.1} %")?;
                }
                None => writeln!(f, "{name:<24} {:>12} {now:>12}", "none")?,
            }
        }
        Ok(())
    }
}

fn change_percent(now: u64, accepted: u64) -> f64 {
    (now as f64 / accepted as f64 - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(accepted: &str, counted: &str) -> Vec<String> {
        let read = |text| Figures::parse(text).unwrap();
        Comparison::of(&read(accepted), &read(counted), 15).complaints()
    }

    #[test]
    fn a_figure_may_grow_by_the_tolerance_and_not_by_one_more() {
        assert_eq!(complaints("sqlite claim 1000", "sqlite claim 1150"), [""; 0]);
        assert_eq!(
            complaints("sqlite claim 1000", "sqlite claim 1151"),
            ["sqlite claim takes +15.1 % instructions (1000 to 1151, at most +15 %)"]
        );
    }

    #[test]
    fn a_figure_that_falls_by_more_than_half_wants_to_be_accepted() {
        assert_eq!(complaints("sqlite claim 1000", "sqlite claim 500"), [""; 0]);
        assert_eq!(
            complaints("sqlite claim 1000", "sqlite claim 499"),
            ["sqlite claim takes less than half its instructions (1000 to 499)"]
        );
    }

    #[test]
    fn the_least_of_several_rounds_is_the_figure() {
        let mut figures = Figures::default();
        for number in [7, 5, 6] {
            figures.add_round("sqlite claim", number);
        }
        assert_eq!(figures, Figures::parse("sqlite claim 5").unwrap());
    }

    #[test]
    fn a_figure_that_nobody_accepted_fails_and_one_that_was_not_counted_does_not() {
        assert_eq!(
            complaints("postgres claim 5", "sqlite claim 5"),
            ["sqlite claim has no accepted figure"]
        );
    }

    #[test]
    fn accepting_keeps_the_database_that_was_not_there() {
        let old = Figures::parse("postgres claim 5\nsqlite claim 6\nsqlite gone 7\n").unwrap();
        let new = Figures::parse("sqlite claim 8\n").unwrap();
        let accepted = old.with(&new).to_string();
        assert_eq!(accepted, format!("{HEAD}postgres claim 5\nsqlite claim 8\n"));
        assert_eq!(Figures::parse(&accepted).unwrap().len(), 2);
    }

    #[test]
    fn a_line_that_does_not_read_is_named() {
        let error = Figures::parse("sqlite claim many").unwrap_err();
        assert_eq!(error.to_string(), "`sqlite claim many` is not a name and a number");
    }

    #[test]
    fn only_what_was_counted_in_a_part_is_its_cost() {
        let dump =
            |trigger: &str| format!("version: 1\ndesc: Trigger: {trigger}\nevents: Ir\nfn=(1) f\n1 2\ntotals: 42\n");
        let all = Cost { ours: 42, engine: 0 };
        assert_eq!(Cost::read(&dump("--dump-before=counts::counted_to")), Some(all));
        assert_eq!(Cost::read(&dump("--dump-before=counts::counted_from")), None);
        assert_eq!(Cost::read(&dump("Program termination")), None);
    }

    #[test]
    fn the_engines_calls_are_told_apart() {
        let dump = "desc: Trigger: --dump-before=counts::counted_to\nevents: Ir\nsummary: 100\n\n\
                    fn=(1) ours\n1 10\ncfn=(2) sqlite3_step\ncalls=3 0\n1 30\ncfn=(3) other\ncalls=1 0\n1 5\n\n\
                    fn=(2)\n1 25\ncfn=(3)\ncalls=1 0\n2 5\n\nfn=(4) theirs\n+3 20\ncfn=(2)\ncalls=1 +4\n* 10\n\ntotals: 100\n";
        assert_eq!(Cost::read(dump), Some(Cost { ours: 60, engine: 40 }));
    }
}
