//! Lines of the tables at the end. They fit a narrow terminal: two blanks, a name, a number, a remark.

use crate::output::{BOLD, CYAN, DIM, GREEN, PLAIN, RED};

/// The head of a table, with what it takes to run the same again.
pub(crate) fn title(text: &str, seed: u64) -> String {
    format!("\n  {BOLD}{text}{PLAIN}   {DIM}seed {seed}{PLAIN}\n\n")
}

pub(crate) fn row(name: &str, value: i64, says: &str) -> String {
    line("", name, value, says)
}

/// What the rows below are about.
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

/// What to type next, and what it shows.
pub(crate) fn next(steps: &[(String, &str)]) -> String {
    let mut text = String::new();
    for (i, (command, shows)) in steps.iter().enumerate() {
        let label = if i == 0 {
            format!("{DIM}next:{PLAIN}")
        } else {
            "     ".to_owned()
        };
        text += &format!("  {label}  {command:<40}{shows}\n");
    }
    text + "\n"
}

/// The end of a table that should not be, unless it was asked for: what is not over, and who was hit.
pub(crate) fn broken(careless: bool, stuck: Option<&str>, seconds: f64, hit: &[(&str, Vec<i64>)]) -> String {
    let says = if careless {
        "This is what happens without care; run it again without --careless."
    } else {
        "This must not happen."
    };
    let mut text = format!("\n  {RED}{says}{PLAIN}\n");
    if let Some(stuck) = stuck {
        text += &format!("  not over after {seconds:.0} s: {stuck}\n");
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
