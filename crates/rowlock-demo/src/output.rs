//! What people see of a run, and the text that they get when it cannot begin. Colours appear on a terminal only.

use std::{
    fmt,
    io::{IsTerminal, Write},
};

use anyhow::Result;

pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const DIM: &str = "\x1b[2m";
pub(crate) const RED: &str = "\x1b[1;31m";
pub(crate) const GREEN: &str = "\x1b[1;32m";
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

/// A problem that comes with its next step. [`run`](crate::run) fails with it before anything is done.
#[derive(Debug)]
pub struct Advice {
    problem: String,
    next: String,
    usage: bool,
}

impl Advice {
    pub(crate) fn error(problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        Advice::told(problem.into(), next.into(), false)
    }

    /// The same for a wrong command line.
    pub(crate) fn usage(problem: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
        Advice::told(problem.into(), next.into(), true)
    }

    fn told(problem: String, next: String, usage: bool) -> anyhow::Error {
        anyhow::Error::new(Advice { problem, next, usage })
    }

    /// What to try instead.
    pub fn next(&self) -> &str {
        &self.next
    }

    /// Whether the options contradict each other or cannot be used together.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Advice {}
