//! The command line of the program protocol, and the JSON lines it answers with.

use std::io::Write;

use anyhow::{Context, Result};
use serde_json::Value;

/// `program <verb> [--name value]…`; an option without a value is a flag.
pub struct Ask {
    pub verb: String,
    options: Vec<(String, Option<String>)>,
}

impl Ask {
    pub fn from_command_line() -> Self {
        let mut words = std::env::args().skip(1).peekable();
        let verb = words.next().unwrap_or_default();
        let mut options = Vec::new();
        while let Some(word) = words.next() {
            let value = words.next_if(|next| !next.starts_with("--"));
            options.push((word.trim_start_matches("--").to_owned(), value));
        }
        Self { verb, options }
    }

    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| option == name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(option, _)| option == name)?.1.as_deref()
    }

    pub fn number(&self, name: &str, otherwise: u64) -> Result<u64> {
        match self.text(name) {
            Some(text) => text.parse().with_context(|| format!("--{name} {text} is not a number")),
            None => Ok(otherwise),
        }
    }
}

/// The best value found for a setting, unless the command line gives another (`--slots 64`), so that you can check it.
pub fn dial(name: &str, best: usize) -> usize {
    let asked = Ask::from_command_line().number(name, best as u64);
    asked.map_or(best, |value| usize::try_from(value).unwrap_or(best))
}

/// One JSON object on a separate line, flushed: the harness reads while we run.
pub fn emit(line: Value) {
    let mut out = std::io::stdout().lock();
    // A harness that closed the pipe has no more use for the line.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
