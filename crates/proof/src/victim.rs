//! Victims: real worker processes that the suites kill, freeze and set going again.
//!
//! A victim is the `victim` binary of this crate, or another program around [`process`]. Its only argument is its
//! [`Orders`]. It stops at a named point when asked to, prints what happens to it on stdout, and ends when its stdin
//! closes, so that none outlives its test.

mod jobs;
pub mod process;

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::jobs::{
    Abort, Atomic, Batched, Behind, Charge, Failing, Follow, Gated, Hold, Hooked, Moody, Numbered, Parked, Plain,
    Quick, Slow, Staged, Together,
};
use crate::{bed::until, child::Lines};

/// The lease of a victim unless its orders say otherwise.
pub const LEASE: Duration = Duration::from_secs(2);

/// How long the suites wait for a victim to do what it must.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The variable that names the point to stop at.
pub const POINT_VAR: &str = "ROWLOCK_FAULT";

/// Lines shown of a victim's output when a test fails.
const LINES_SHOWN: usize = 60;

/// What a victim is to do; its only argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The database.
    pub url: String,
    /// Where the fake provider listens.
    pub provider: Option<SocketAddr>,
    /// Where the till listens.
    pub till: Option<SocketAddr>,
    /// A file to which handlers append a line when they start.
    pub starts: Option<PathBuf>,
    /// The lease.
    pub lease_ms: u64,
    /// Workers in this one process, each with its own handle and connections.
    pub workers: usize,
    /// The queue that all of them serve.
    pub queue: String,
    /// Concurrent handlers, per worker.
    pub concurrency: usize,
    /// Jobs claimed ahead, per worker.
    pub prefetch: Option<usize>,
    /// Takes jobs of the kind `together`, at most so many per commit.
    pub batch: Option<usize>,
    /// Connections for handlers, per worker.
    pub connections: Option<usize>,
    /// The name that every worker gives itself.
    pub name: Option<String>,
    /// Leaves claimed and settled jobs out of the printed events.
    pub quiet: bool,
    /// Where its metrics and spans go, by OTLP over HTTP.
    pub otlp: Option<String>,
}

impl Orders {
    /// One worker with a short lease on the queue `default`.
    pub fn new(url: &str) -> Orders {
        Orders {
            url: url.to_owned(),
            provider: None,
            till: None,
            starts: None,
            lease_ms: LEASE.as_millis() as u64,
            workers: 1,
            queue: "default".into(),
            concurrency: 8,
            prefetch: None,
            batch: None,
            connections: None,
            name: None,
            quiet: false,
            otlp: None,
        }
    }
}

/// A victim at work. Dropped, it is killed.
pub struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Lines,
    err: Lines,
    ended: Option<ExitStatus>,
}

impl Victim {
    /// Starts the program `exe`, which is to stop at `point` if there is one.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn start(exe: &str, orders: &Orders, point: Option<&str>) -> Result<Victim> {
        let mut command = Command::new(exe);
        command.arg(serde_json::to_string(orders)?).env_remove(POINT_VAR);
        if let Some(point) = point {
            command.env(POINT_VAR, point);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start {exe}"))?;
        let out = Lines::of(child.stdout.take().context("a victim has a stdout")?);
        let err = Lines::of(child.stderr.take().context("a victim has a stderr")?);
        Ok(Victim {
            stdin: child.stdin.take(),
            child,
            out,
            err,
            ended: None,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has stopped at this point.
    ///
    /// # Errors
    /// It ended before.
    ///
    /// # Panics
    /// When it does not get there in time.
    pub async fn stands_at(&mut self, point: &str) -> Result<()> {
        let line = format!("at {point}");
        let out = self.out.clone();
        let there = until(&format!("a victim to stand {line}"), PATIENCE, || {
            let there = out.have(&line);
            std::future::ready((there || self.has_ended()).then_some(there))
        })
        .await;
        there
            .then_some(())
            .with_context(|| format!("the victim ended before it stood {line}:\n{}", self.tail()))
    }

    /// Whether it has ended by itself or was killed.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it goes on.
    pub async fn has_come_to_an_end(&mut self) {
        until("a victim to end", PATIENCE, || {
            std::future::ready(self.has_ended().then_some(()))
        })
        .await;
    }

    /// Whether it ended by `abort`.
    pub fn was_aborted(&self) -> bool {
        self.ended.and_then(|status| status.signal()) == Some(Signal::ABORT.as_raw())
    }

    /// SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// The system refused.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("could not kill a victim")?;
        self.ended = Some(self.child.wait()?);
        Ok(())
    }

    /// SIGSTOP, and waits until every thread of it has stopped.
    ///
    /// # Errors
    /// It has ended.
    ///
    /// # Panics
    /// When it does not stop.
    pub async fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a victim to stand still", PATIENCE, async || {
            (self.state() == Some('T')).then_some(())
        })
        .await;
        Ok(())
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It has ended.
    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGTERM, and waits for its orderly end.
    ///
    /// # Errors
    /// It ended otherwise.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn stop(&mut self) -> Result<()> {
        // Another one may have done its work before it was even up.
        until("a victim to be up", PATIENCE, || {
            let up = !self.events("up").is_empty();
            std::future::ready((up || self.has_ended()).then_some(()))
        })
        .await;
        self.signal(Signal::TERM)?;
        self.has_come_to_an_end().await;
        if !self.ended.is_some_and(|status| status.success()) {
            bail!("a victim told to stop ended with {:?}:\n{}", self.ended, self.tail());
        }
        Ok(())
    }

    /// Lets it go on from the point where it waits.
    ///
    /// # Errors
    /// It has ended.
    pub fn go_on(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the victim's stdin is closed")?;
        stdin.write_all(b"\n")?;
        Ok(stdin.flush()?)
    }

    /// The events of this name that it has printed.
    pub fn events(&self, name: &str) -> Vec<Value> {
        let lines = self.out.all();
        let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == name).collect()
    }

    /// Waits for the first event of this name.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn reports(&self, name: &str) -> Value {
        until(&format!("a victim to report {name}"), PATIENCE, async || {
            self.events(name).into_iter().next()
        })
        .await
    }

    /// How many lines of its log have this in them.
    pub fn logged(&self, text: &str) -> usize {
        self.err.all().iter().filter(|line| line.contains(text)).count()
    }

    /// Processor time used so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu(&self) -> Result<Duration> {
        // Fields 14 and 15, counted behind the name, which may hold anything; in hundredths of a second on Linux.
        let stat = self.stat().context("the victim is gone")?;
        let mut fields = stat.split_whitespace().skip(11);
        let mut ticks = || {
            fields
                .next()
                .and_then(|f| f.parse::<u64>().ok())
                .context("no processor time")
        };
        Ok(Duration::from_millis((ticks()? + ticks()?) * 10))
    }

    /// The end of what it printed and logged.
    pub fn tail(&self) -> String {
        let end = |lines: &Lines| {
            let lines = lines.all();
            lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
        };
        format!(
            "victim {} printed:\n{}\nlogged:\n{}",
            self.pid(),
            end(&self.out),
            end(&self.err)
        )
    }

    fn state(&self) -> Option<char> {
        self.stat()?.trim_start().chars().next()
    }

    fn stat(&self) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        Some(stat.rsplit_once(')')?.1.to_owned())
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.has_ended() {
            bail!("the victim has ended:\n{}", self.tail());
        }
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("could not send {signal:?}"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
        if !self.has_ended() {
            // Nothing to do about a failure: its stdin closes next, and it ends by that.
            let _ = self.kill();
        }
    }
}
