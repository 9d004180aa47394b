//! What every process that the suites start has to do with its parent: its lines are read, and it ends with it.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::event::{PollFd, PollFlags, poll};

/// What a process has printed so far.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Reads to the end on a thread of its own, so that a process never waits for its reader.
    pub fn of(from: impl Read + Send + 'static) -> Lines {
        let lines = Lines::default();
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(|line| line.ok()) {
                kept.all().push(line);
            }
        });
        lines
    }

    /// All of them.
    pub fn all(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is one of them.
    pub fn have(&self, line: &str) -> bool {
        self.all().iter().any(|said| said == line)
    }
}

/// Ends this process when nobody holds the other end of its stdin any more. Only looks: what is written there is for
/// the fail point at which it stands.
pub fn end_with_parent() {
    let stdin = std::io::stdin();
    loop {
        let mut ends = [PollFd::new(&stdin, PollFlags::empty())];
        if poll(&mut ends, None).is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            std::process::exit(3);
        }
    }
}
