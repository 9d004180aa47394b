//! What rowers write down about themselves, a line each in one write, so that a kill loses nothing that was said.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    time::SystemTime,
};

use anyhow::{Context, Result};

/// One line of a rower's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A handler started.
    Start {
        /// When, in milliseconds, on the rower's own clock.
        at: i64,
        /// The job.
        id: i64,
        /// Its lease.
        epoch: i64,
    },
    /// A handler returned or was dropped.
    End {
        /// When.
        at: i64,
        /// The job.
        id: i64,
        /// Its lease.
        epoch: i64,
    },
    /// The library said that the attempt is done and committed.
    Done {
        /// The job.
        id: i64,
        /// Its lease.
        epoch: i64,
    },
    /// The library said that the lease was lost.
    Lost {
        /// The job.
        id: i64,
        /// Its lease.
        epoch: i64,
    },
    /// The library looked up what became of a commit.
    Resolved {
        /// The job.
        id: i64,
        /// Its lease.
        epoch: i64,
        /// Its answer.
        committed: bool,
    },
    /// A handler is about to go wrong, on purpose.
    Mishap {
        /// How.
        what: String,
        /// The job.
        id: i64,
    },
    /// A producer is about to commit an order.
    Try {
        /// The order.
        order: i64,
    },
    /// The commit of an order came back.
    Confirmed {
        /// The order.
        order: i64,
        /// Its job.
        id: i64,
    },
    /// An order was rolled back on purpose.
    RolledBack {
        /// The order.
        order: i64,
    },
    /// An enqueue under a shared key came back.
    Keyed {
        /// What the producers share.
        slot: i64,
        /// The job that holds the key.
        id: i64,
    },
    /// Anything else worth a count.
    Note {
        /// What.
        what: String,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Start { at, id, epoch } => write!(f, "start {at} {id} {epoch}"),
            Line::End { at, id, epoch } => write!(f, "end {at} {id} {epoch}"),
            Line::Done { id, epoch } => write!(f, "done {id} {epoch}"),
            Line::Lost { id, epoch } => write!(f, "lost {id} {epoch}"),
            Line::Resolved { id, epoch, committed } => write!(f, "resolved {id} {epoch} {}", i32::from(*committed)),
            Line::Mishap { what, id } => write!(f, "mishap {id} {what}"),
            Line::Try { order } => write!(f, "try {order}"),
            Line::Confirmed { order, id } => write!(f, "confirmed {order} {id}"),
            Line::RolledBack { order } => write!(f, "rolledback {order}"),
            Line::Keyed { slot, id } => write!(f, "keyed {slot} {id}"),
            Line::Note { what } => write!(f, "note {what}"),
        }
    }
}

impl Line {
    /// Reads a line back. The last one of a killed process may be cut short: that is for the caller to know.
    ///
    /// # Errors
    /// It does not read.
    pub fn parse(text: &str) -> Result<Line> {
        Line::read(text).with_context(|| format!("a rower's log reads {text:?}"))
    }

    fn read(text: &str) -> Option<Line> {
        let (word, rest) = text.split_once(' ')?;
        let named = |at: usize| Some(rest.splitn(at + 1, ' ').nth(at)?.to_owned());
        let number = |at: usize| rest.split(' ').nth(at)?.parse::<i64>().ok();
        let whole = |count: usize| rest.split(' ').count() == count;
        Some(match word {
            "start" if whole(3) => Line::Start {
                at: number(0)?,
                id: number(1)?,
                epoch: number(2)?,
            },
            "end" if whole(3) => Line::End {
                at: number(0)?,
                id: number(1)?,
                epoch: number(2)?,
            },
            "done" if whole(2) => Line::Done {
                id: number(0)?,
                epoch: number(1)?,
            },
            "lost" if whole(2) => Line::Lost {
                id: number(0)?,
                epoch: number(1)?,
            },
            "resolved" if whole(3) => Line::Resolved {
                id: number(0)?,
                epoch: number(1)?,
                committed: number(2)? == 1,
            },
            "mishap" => Line::Mishap {
                id: number(0)?,
                what: named(1)?,
            },
            "try" if whole(1) => Line::Try { order: number(0)? },
            "confirmed" if whole(2) => Line::Confirmed {
                order: number(0)?,
                id: number(1)?,
            },
            "rolledback" if whole(1) => Line::RolledBack { order: number(0)? },
            "keyed" if whole(2) => Line::Keyed {
                slot: number(0)?,
                id: number(1)?,
            },
            "note" => Line::Note { what: named(0)? },
            _ => return None,
        })
    }
}

/// A log being written.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Opens it at its end.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Log(file.with_context(|| format!("the log {}", path.display()))?))
    }

    /// Writes a line.
    ///
    /// # Panics
    /// When it cannot: a run without its logs proves nothing.
    pub fn write(&self, line: &Line) {
        let text = format!("{line}\n");
        (&self.0).write_all(text.as_bytes()).expect("a rower writes its log");
    }
}

/// Now, in milliseconds, on this process's clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_reads_back() {
        let lines = [
            Line::Start { at: 1, id: 2, epoch: 3 },
            Line::End { at: 1, id: 2, epoch: 3 },
            Line::Done { id: 2, epoch: 3 },
            Line::Lost { id: 2, epoch: 3 },
            Line::Resolved {
                id: 2,
                epoch: 3,
                committed: true,
            },
            Line::Resolved {
                id: 2,
                epoch: 3,
                committed: false,
            },
            Line::Mishap {
                what: "memory limit".into(),
                id: 5,
            },
            Line::Try { order: 7 },
            Line::Confirmed { order: 7, id: 8 },
            Line::RolledBack { order: 7 },
            Line::Keyed { slot: 1, id: 2 },
            Line::Note { what: "cut off".into() },
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()).unwrap(), line);
        }
    }

    #[test]
    fn a_line_cut_short_does_not_read_as_another() {
        for text in [
            "start 1 2",
            "sta",
            "resolved 1 2",
            "confirmed 5",
            "",
            "start 1 2 3 4",
            "done 1 x",
        ] {
            assert!(Line::parse(text).is_err(), "{text:?}");
        }
    }
}
