//! A program's process group: whatever the program starts is in it, unless it takes care not to be, and ends with it.
//!
//! The whole group is asked to end (SIGTERM) and, a moment later, made to (SIGKILL). That also happens when nobody
//! waits for the program any more: a handler that is cut off (its lease is lost, its job is cancelled, the worker
//! stops) drops its group, and a separate task ends the group.

use std::{io, process::ExitStatus, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

/// The time between SIGTERM and SIGKILL for a program that nobody waits for any more. Another worker may start the job
/// as soon as the lease is over, and a handler is cut a second before that.
const CUT_GRACE: Duration = Duration::from_millis(700);

/// The same for processes that an ended program leaves behind.
pub(crate) const REST_GRACE: Duration = Duration::from_millis(500);

const POLL: Duration = Duration::from_millis(10);

/// A running program with everything it started.
#[derive(Debug)]
pub(crate) struct Group {
    pid: Option<Pid>,
    /// The program itself, until it has ended.
    pub(crate) child: Option<Child>,
    /// No process of the group is left.
    over: bool,
    /// The tasks that end the group when nobody waits for it any more; `None` if a task does that already.
    enders: Option<TaskTracker>,
}

impl Group {
    /// Starts the program at the head of a new group.
    pub(crate) fn spawn(command: &mut Command, enders: &TaskTracker) -> io::Result<Group> {
        let child = command.process_group(0).spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Group {
            pid,
            child: Some(child),
            over: false,
            enders: Some(enders.clone()),
        })
    }

    /// Waits for the program itself. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else {
            return Err(io::Error::other("it has ended before"));
        };
        let status = child.wait().await;
        self.child = None;
        status
    }

    /// Ends the program if it runs, and what it left running if it does not.
    pub(crate) async fn end(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        if self.signal(Signal::TERM) {
            if let Some(child) = &mut self.child {
                // The same follows whether it ended or the time was over.
                let _ = timeout_at(until, child.wait()).await;
            }
            if !self.is_gone_by(until).await {
                self.signal(Signal::KILL);
            }
        }
        if let Some(mut child) = self.child.take() {
            // It cannot refuse SIGKILL; an error says that it is gone already.
            let _ = child.wait().await;
        }
        self.over = true;
    }

    /// Sends a signal. Returns whether the group has a member. A group keeps its number while it has a member; an empty
    /// group is gone.
    fn signal(&self, signal: Signal) -> bool {
        self.pid.is_some_and(|pid| kill_process_group(pid, signal).is_ok())
    }

    async fn is_gone_by(&self, until: Instant) -> bool {
        loop {
            if self.pid.is_none_or(|pid| test_kill_process_group(pid).is_err()) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(POLL).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let enders = self.enders.take();
        let (Some(enders), Ok(_)) = (enders, tokio::runtime::Handle::try_current()) else {
            // There is nobody left to wait for the grace.
            self.signal(Signal::KILL);
            return;
        };
        let mut rest = Group {
            pid: self.pid,
            child: self.child.take(),
            over: false,
            enders: None,
        };
        enders.spawn(async move { rest.end(CUT_GRACE).await });
    }
}
