//! What processes that the suites start have in common: where their programs are, that their lines are read, and that
//! they end with who started them.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal, kill_process},
};

use crate::chaos::log::now_ms;

/// The program that this variable names, or the one of this name in `PATH` or Debian's folders. `None` when there is
/// none, or when the variable is empty.
pub fn program(var: &str, name: &str) -> Option<PathBuf> {
    if let Some(told) = std::env::var_os(var) {
        return Some(PathBuf::from(told)).filter(|path| !path.as_os_str().is_empty());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// [`program`] for a suite.
///
/// # Panics
/// When there is none and nobody said that there is none: a suite that silently runs nothing would look green.
pub fn program_or_told(var: &str, name: &str) -> Option<PathBuf> {
    let found = program(var, name);
    assert!(
        found.is_some() || std::env::var_os(var).is_some(),
        "no {name} in PATH; run `cargo xtask test`, which gets it"
    );
    found
}

/// What the run says by this variable: an address or a folder. `None` when there is none: the variable is empty.
///
/// # Panics
/// When the variable is not set: a suite that silently runs nothing would look green.
pub fn told(var: &str) -> Option<String> {
    let value = std::env::var(var).unwrap_or_else(|_| {
        panic!("{var} is not set, or could not be had; run `cargo xtask test` or `cargo xtask servers`, which say why")
    });
    Some(value).filter(|value| !value.is_empty())
}

/// A port on loopback that nobody listens on, as far as one can know.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server that a suite has started, killed when it is dropped.
#[derive(Default)]
pub struct Served(Option<Child>);

impl Served {
    /// Starts it, with nothing to read and nobody to hear it but on its standard error.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start(&mut self, command: &mut Command) -> Result<()> {
        self.0 = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// SIGKILL: nothing is written down, and everybody is cut off.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.0.as_ref().and_then(|child| Pid::from_raw(child.id() as i32));
        Ok(kill_process(pid.context("it does not run")?, signal)?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a process has printed so far.
#[derive(Clone, Default)]
pub struct Lines {
    said: Arc<Mutex<Vec<String>>>,
    over_ms: Arc<OnceLock<i64>>,
}

impl Lines {
    /// Reads to the end on a separate thread, so that a process never waits for its reader.
    pub fn of(from: impl Read + Send + 'static) -> Lines {
        let lines = Lines::default();
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(|line| line.ok()) {
                kept.all().push(line);
            }
            kept.over_ms.get_or_init(now_ms);
        });
        lines
    }

    /// All of them.
    pub fn all(&self) -> MutexGuard<'_, Vec<String>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the last end of the pipe was closed: none of the threads that could print runs any more.
    pub fn over_ms(&self) -> Option<i64> {
        self.over_ms.get().copied()
    }

    /// Whether this is one of them.
    pub fn have(&self, line: &str) -> bool {
        self.all().iter().any(|said| said == line)
    }
}

/// Ends this process when nobody holds the other end of its stdin any more. Only looks: what is written there is for
/// the fail point at which it waits.
pub fn end_with_parent() {
    let stdin = std::io::stdin();
    loop {
        let mut ends = [PollFd::new(&stdin, PollFlags::empty())];
        if poll(&mut ends, None).is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            std::process::exit(3);
        }
    }
}
