//! A worker as the first process of a container.
//!
//! The kernel gives processes whose parent has ended to process 1, which must collect their exit codes. Otherwise they
//! stay as zombies. The async runtime waits only for programs that it started. So as process 1 the command starts
//! itself as a child, passes signals on, and collects every process that ends.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitCode},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait},
};
use tokio::signal::unix::{SignalKind, signal};

/// Signals that the worker gets through this process.
const PASSED_ON: [(SignalKind, Signal); 4] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
];

/// Whether this process has to collect the processes of others.
pub(crate) fn is_first() -> bool {
    std::process::id() == 1
}

/// Runs this command line again as a child, until the child ends; the exit code is the child's.
pub(crate) async fn run() -> io::Result<ExitCode> {
    let mut ended = signal(SignalKind::child())?;
    // Before the worker starts: a signal that arrives in between waits in its stream.
    let mut streams = Vec::new();
    for (kind, name) in PASSED_ON {
        streams.push((signal(kind)?, name));
    }
    // Its own process group: a terminal's Ctrl-C would reach it twice.
    let child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .process_group(0)
        .spawn()?;
    let worker = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let worker = worker.ok_or_else(|| io::Error::other("the worker has no process id"))?;
    for (mut heard, name) in streams {
        tokio::spawn(async move {
            while heard.recv().await.is_some() {
                // A worker that has ended needs no signal.
                let _ = kill_process(worker, name);
            }
        });
    }
    loop {
        while let Some((pid, status)) = collected()? {
            if pid == worker && (status.exited() || status.signaled()) {
                return Ok(code(status));
            }
        }
        ended.recv().await;
    }
}

/// One process that has ended.
fn collected() -> io::Result<Option<(Pid, WaitStatus)>> {
    match wait(WaitOptions::NOHANG) {
        Err(Errno::CHILD) => Ok(None),
        other => Ok(other?),
    }
}

/// As shells report it: the exit code, or 128 and the number of the signal.
fn code(status: WaitStatus) -> ExitCode {
    let status = std::process::ExitStatus::from_raw(status.as_raw());
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
