//! What users see: tables, times, errors. Colours appear on a terminal only, passwords never.

use std::{
    fmt,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::Result;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde::Serialize;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::exit::Exit;

pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const DIM: &str = "\x1b[2m";
pub(crate) const RED: &str = "\x1b[1;31m";
pub(crate) const CYAN: &str = "\x1b[36m";
pub(crate) const PLAIN: &str = "\x1b[0m";

/// Writes data to stdout. A reader that went away (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// One JSON value and a line end.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A dry run, for scripts.
#[derive(Serialize)]
struct Dry {
    dry_run: bool,
    #[serde(flatten)]
    counts: serde_json::Value,
}

/// Prints what a command would do with `--yes`: `what` for people, or a JSON object with the `counts`. Nothing was
/// done, so the exit code is not 0.
pub(crate) fn would(json: bool, what: &str, counts: serde_json::Value) -> Result<ExitCode> {
    match json {
        true => print_json(&Dry { dry_run: true, counts })?,
        false => print(&format!("would {what}; add --yes to do it\n"))?,
    }
    Ok(Exit::Usage.into())
}

/// Prints that a dry run found nothing; `why` is for people. There is nothing to confirm, so the exit code is 0.
pub(crate) fn nothing_to_do(json: bool, why: &str, counts: serde_json::Value) -> Result<ExitCode> {
    match json {
        true => print_json(&Dry { dry_run: true, counts })?,
        false => print(&format!("nothing to do: {why}\n"))?,
    }
    Ok(Exit::Done.into())
}

/// Prints the library's warnings and errors.
pub(crate) fn pass_on_warnings() {
    let only = Targets::new()
        .with_target("rowlock", LevelFilter::WARN)
        .with_target("rowlock_sqs", LevelFilter::WARN);
    let plain = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let plain = plain.with_ansi(false).without_time().with_target(false);
    tracing_subscriber::registry().with(plain.with_filter(only)).init();
}

/// Prints a message that is not data, to stderr.
pub(crate) fn note(text: &str) {
    let mut err = anstream::stderr().lock();
    // Nothing can be done if stderr is closed.
    let _ = writeln!(err, "{text}");
}

/// Prints progress on one line of a terminal; nothing into a file or a pipe.
pub(crate) fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(anstream::stderr().lock(), "\r{text}\x1b[K");
    }
}

/// A table with a quiet header and no frame.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .enforce_styling();
    table.set_header(header.map(|h| Cell::new(h).add_attribute(Attribute::Dim)));
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if i + 1 < N { 2 } else { 0 }));
    }
    table
}

/// The table's text, without blanks at the line ends.
pub(crate) fn text(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", without_end(&line))).collect()
}

/// Without the blanks at its end, coloured ones included.
fn without_end(line: &str) -> String {
    let mut kept = line.trim_end();
    let mut codes = String::new();
    while let Some(code) = kept.rfind("\x1b[").map(|at| &kept[at..]) {
        if !code.ends_with('m') || code.matches('m').count() > 1 {
            break;
        }
        codes.insert_str(0, code);
        kept = kept[..kept.len() - code.len()].trim_end();
    }
    format!("{kept}{codes}")
}

pub(crate) fn right(value: impl ToString) -> Cell {
    Cell::new(value).set_alignment(CellAlignment::Right)
}

/// A count that deserves a look when it is not zero.
pub(crate) fn watched(count: i64) -> Cell {
    let cell = right(count);
    if count > 0 { cell.fg(Color::Red) } else { cell }
}

/// One line of at most `max` characters.
pub(crate) fn short(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    line.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// A duration for people.
pub(crate) fn span_ms(ms: i64) -> String {
    let (seconds, minutes, hours) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match (hours, minutes, seconds) {
        (0, 0, 0) => format!("{ms} ms"),
        (0, 0, _) => format!("{seconds}.{} s", ms % 1000 / 100),
        (0, _, _) => format!("{minutes} min {} s", seconds % 60),
        (..48, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// How long ago, or how far ahead.
pub(crate) fn when(at: Timestamp) -> String {
    let ms = Timestamp::now().duration_since(at).as_millis();
    let ms = i64::try_from(ms).unwrap_or(if ms < 0 { i64::MIN + 1 } else { i64::MAX });
    if ms < 0 {
        format!("in {}", span_ms(-ms))
    } else {
        format!("{} ago", span_ms(ms))
    }
}

/// A problem that comes with its next step.
#[derive(Debug)]
pub(crate) struct Advice {
    problem: String,
    next: String,
    exit: Exit,
    cause: Option<std::io::Error>,
}

impl Advice {
    pub(crate) fn error(problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        Advice::ending(Exit::Failed, problem, next)
    }

    /// The same for something that does not exist.
    pub(crate) fn missing(problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        Advice::ending(Exit::NotFound, problem, next)
    }

    /// The same for a wrong command line; nothing was done.
    pub(crate) fn usage(problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        Advice::ending(Exit::Usage, problem, next)
    }

    /// The same as [`Advice::usage`], with the cause.
    pub(crate) fn because(cause: std::io::Error, problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Advice {
            problem: problem.into(),
            next: next.into(),
            exit: Exit::Usage,
            cause: Some(cause),
        })
    }

    fn ending(exit: Exit, problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Advice {
            problem: problem.into(),
            next: next.into(),
            exit,
            cause: None,
        })
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Advice {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// Prints the error and gives the exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    tell(error);
    Exit::of(error).into()
}

/// Prints the error.
pub(crate) fn tell(error: &anyhow::Error) {
    let mut text = String::new();
    for (label, style, line) in lines(error) {
        text += &format!("{style}{label}{PLAIN} {line}\n");
    }
    note(without_passwords(&text).trim_end());
}

fn lines(error: &anyhow::Error) -> Vec<(&'static str, &'static str, String)> {
    let mut lines: Vec<(&str, &str, String)> = Vec::new();
    for link in error.chain() {
        let text = link.to_string();
        // Many errors print their source themselves; print it once.
        if lines.last().is_some_and(|(_, _, last)| last.contains(&text)) {
            continue;
        }
        lines.push(if lines.is_empty() {
            ("error:", RED, text)
        } else {
            ("cause:", BOLD, text)
        });
    }
    if let Some(next) = next_step(error) {
        lines.push(("try:  ", CYAN, next));
    }
    lines
}

fn next_step(error: &anyhow::Error) -> Option<String> {
    for link in error.chain() {
        if let Some(advice) = link.downcast_ref::<Advice>() {
            return Some(advice.next.clone());
        }
        match link.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Io(_)) => {
                return Some("check that the server is running and that --database has the right host and port".into());
            }
            // SQLITE_CANTOPEN
            Some(sqlx::Error::Database(e)) if e.code().as_deref() == Some("14") => {
                return Some("check that the directory of the file exists and is writable".into());
            }
            _ => {}
        }
    }
    None
}

/// Replaces the password of every URL in a text.
pub(crate) fn without_passwords(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean += before;
        // A password may hold an `@` or `/`, so the last `@` of the word ends it.
        let word = after
            .find(|c: char| c.is_whitespace() || "\"'`".contains(c))
            .unwrap_or(after.len());
        match after[..word]
            .rfind('@')
            .and_then(|end| Some((after[..end].find(':')?, end)))
        {
            Some((colon, end)) => {
                clean += &after[..colon];
                clean += ":***";
                rest = &after[end..];
            }
            None => rest = after,
        }
    }
    let clean = clean + rest;
    hide_parameter(&clean, "password=")
}

/// A URL may also carry its password as a parameter.
fn hide_parameter(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| c.is_whitespace() || "&\"'`".contains(c))
            .unwrap_or(part.len());
        clean += &format!("{name}***{}", &part[end..]);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_of_a_url_survives() {
        for (from, to) in [
            ("at postgres://me:pw@host/db now", "at postgres://me:***@host/db now"),
            ("'postgres://me:p@w/x@host:5432/db'", "'postgres://me:***@host:5432/db'"),
            ("postgres://me@host:5432/db", "postgres://me@host:5432/db"),
            ("a://b:c@d e://f:g@h", "a://b:***@d e://f:***@h"),
            (
                "postgres://h/db?user=me&password=pw&x=1",
                "postgres://h/db?user=me&password=***&x=1",
            ),
        ] {
            assert_eq!(without_passwords(from), to);
        }
    }

    #[test]
    fn a_cause_that_was_said_already_is_not_repeated() {
        let error = anyhow::anyhow!("inner").context("outer: inner").context("top");
        let said: Vec<_> = lines(&error)
            .into_iter()
            .map(|(label, _, text)| format!("{label} {text}"))
            .collect();
        assert_eq!(said, ["error: top", "cause: outer: inner"]);
    }

    #[test]
    fn spans_read_like_speech() {
        assert_eq!(span_ms(12), "12 ms");
        assert_eq!(span_ms(2_345), "2.3 s");
        assert_eq!(span_ms(125_000), "2 min 5 s");
        assert_eq!(span_ms(90_000_000), "25 h 0 min");
        assert_eq!(span_ms(180_000_000), "2 d 2 h");
    }

    #[test]
    fn no_line_of_a_table_ends_with_blanks_that_a_colour_hides() {
        assert_eq!(without_end("a  b   "), "a  b");
        assert_eq!(
            without_end("\x1b[2ma\x1b[0m  \x1b[2mb   \x1b[0m  "),
            "\x1b[2ma\x1b[0m  \x1b[2mb\x1b[0m"
        );
        assert_eq!(without_end("\x1b[31mfrom m\x1b[39m"), "\x1b[31mfrom m\x1b[39m");
        assert_eq!(without_end("a \x1b[2m  \x1b[0m"), "a\x1b[2m\x1b[0m");
    }

    #[test]
    fn a_long_text_is_cut_to_one_line() {
        assert_eq!(short("a\n  b", 10), "a b");
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
