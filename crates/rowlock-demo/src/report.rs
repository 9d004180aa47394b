//! Lines of the tables at the end. They fit a narrow terminal: two blanks, a name, a number, a remark.

use crate::output::{BOLD, CYAN, DIM, GREEN, PLAIN, RED};

/// The title of a table, with the seed of the run.
pub(crate) fn title(text: &str, seed: u64) -> String {
    format!("\n  {BOLD}{text}{PLAIN}   {DIM}seed {seed}{PLAIN}\n\n")
}

pub(crate) fn row(name: &str, value: i64, says: &str) -> String {
    line("", name, value, says)
}

/// The title of the rows below.
pub(crate) fn heading(text: &str) -> String {
    format!("  {CYAN}{text}{PLAIN}\n")
}

/// A promise: green when nothing broke it.
pub(crate) fn promise(name: &str, value: i64, kept: bool, says: &str) -> String {
    line(if kept { GREEN } else { RED }, name, value, says)
}

pub(crate) fn seconds(seconds: f64) -> String {
    format!("  {:<26}{seconds:>6.1}\n\n", "seconds")
}

fn line(style: &str, name: &str, value: i64, says: &str) -> String {
    format!("  {style}{name:<26}{value:>6}{PLAIN}   {DIM}{says}{PLAIN}\n")
}

/// How the reader called this program: through cargo in a checkout, or installed.
pub(crate) fn program() -> &'static str {
    // `cargo run` sets the variable to the name of the package that it runs, which is the command line's.
    let by_cargo = std::env::var("CARGO_PKG_NAME").is_ok_and(|package| package == "rowlock-cli");
    match (by_cargo, cfg!(debug_assertions)) {
        (true, true) => "cargo run --",
        (true, false) => "cargo run --release --",
        (false, _) => "rowlock",
    }
}

/// Whether the reader has the source at hand.
pub(crate) fn in_checkout() -> bool {
    program() != "rowlock"
}

/// The width of a narrow terminal, and of what is before each command.
const COLUMNS: usize = 80;
const LEAD: usize = 8;

/// The next commands to try, and what each shows: beside the command if that fits, otherwise on a line below it.
pub(crate) fn next(steps: &[(String, &str)]) -> String {
    let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let width = widest(&mut steps.iter().map(|(command, _)| command.as_str()));
    let shows = widest(&mut steps.iter().map(|(_, shows)| *shows));
    let mut text = String::new();
    for (command, shown) in steps {
        text += &match text.is_empty() {
            true => format!("  {DIM}next:{PLAIN} "),
            false => " ".repeat(LEAD),
        };
        text += &match LEAD + width + 2 + shows <= COLUMNS {
            true => format!("{command:<width$}  {DIM}{shown}{PLAIN}\n"),
            false => format!("{command}\n{:LEAD$}  {DIM}{shown}{PLAIN}\n", ""),
        };
    }
    text + "\n"
}

/// The end of a table when the time was over before the work: what is `still` open, and its `parts`.
pub(crate) fn unfinished(seconds: f64, still: &str, parts: &str) -> String {
    format!(
        "  {BOLD}The demo did not finish in {seconds:.0} s: {still}.{PLAIN}\n  {parts}\n  \
         Nothing can be said about lost or doubled yet. Run it again with less to do.\n\n"
    )
}

/// The end of a table with a broken promise: what is not finished, and which orders are affected.
pub(crate) fn broken(careless: bool, stuck: Option<&str>, seconds: f64, hit: &[(&str, Vec<i64>)]) -> String {
    let says = if careless {
        "This is what happens without the protection. Run it again without --careless."
    } else {
        "This must not happen."
    };
    let mut text = format!("\n  {RED}{says}{PLAIN}\n");
    if let Some(stuck) = stuck {
        text += &format!("  not finished after {seconds:.0} s: {stuck}\n");
    }
    for (name, numbers) in hit.iter().filter(|(_, numbers)| !numbers.is_empty()) {
        let some: Vec<String> = numbers.iter().take(10).map(i64::to_string).collect();
        text += &format!("  {name} {}\n", some.join(", "));
    }
    text + "\n"
}

/// Thousandths are enough.
pub(crate) fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(steps: &[(&str, &'static str)]) -> String {
        let steps: Vec<(String, &str)> = steps
            .iter()
            .map(|(command, shows)| ((*command).to_owned(), *shows))
            .collect();
        next(&steps).replace(DIM, "").replace(PLAIN, "")
    }

    #[test]
    fn a_command_never_runs_into_its_explanation() {
        assert_eq!(
            shown(&[
                ("rowlock demo charges", "replies get lost"),
                ("rowlock status", "counts")
            ]),
            "  next: rowlock demo charges  replies get lost\n        rowlock status        counts\n\n"
        );
        let long = "cargo run --release -- demo incidents --database …";
        assert_eq!(
            shown(&[(long, "the same on PostgreSQL"), ("rowlock status", "counts")]),
            format!("  next: {long}\n          the same on PostgreSQL\n        rowlock status\n          counts\n\n")
        );
    }

    #[test]
    fn no_line_is_wider_than_a_narrow_terminal() {
        let (command, shows) = ("x".repeat(40), "the quick tests; add --long");
        for more in 0..10 {
            let command = format!("{command}{}", "x".repeat(more));
            let text = shown(&[(&command, shows)]);
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        }
    }
}
