//! The worker processes: started, killed with SIGKILL, started again.
//!
//! A worker is this program with a hidden command. It ends when its stdin ends, so no worker outlives the demo, however
//! the demo ends. A worker's output goes to a log file.

use std::{
    fs::OpenOptions,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use super::{
    record::{Tape, What},
    show::Show,
};

/// A worker that cannot start is an error of the setup, not a death that the demo shows.
const OWN_DEATHS_MAX: usize = 10;

pub(crate) struct Crew {
    program: PathBuf,
    url: String,
    schema: String,
    folder: PathBuf,
    /// The role of each process, and its arguments.
    role: Vec<String>,
    workers: Vec<Child>,
    pub(crate) kills: usize,
    own_deaths: usize,
    tape: Tape,
}

impl Crew {
    pub(crate) fn new(show: &Show, role: Vec<String>) -> Result<Crew> {
        let site = &show.site;
        Ok(Crew {
            program: std::env::current_exe().context("this program cannot find itself")?,
            url: site.url.clone(),
            schema: site.schema.clone(),
            folder: site.folder().to_owned(),
            role,
            workers: Vec::new(),
            kills: 0,
            own_deaths: 0,
            tape: show.tape.clone(),
        })
    }

    pub(crate) fn hire(&mut self, workers: usize) -> Result<()> {
        for number in 0..workers {
            let worker = self.start(number)?;
            self.workers.push(worker);
        }
        Ok(())
    }

    fn log(&self, number: usize) -> PathBuf {
        self.folder.join(format!("worker-{}.log", number + 1))
    }

    fn start(&self, number: usize) -> Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(self.log(number))?;
        let mut command = Command::new(&self.program);
        command
            .args(["demo-worker", "--schema", &self.schema])
            .args(["--number", &(number + 1).to_string()])
            .args(&self.role)
            // Not as an argument: every user of this machine can read those, and a URL may hold a password.
            .env("ROWLOCK_DATABASE", &self.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        // Ctrl-C is for the demo alone, which then ends them in order.
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().context("a worker process could not be started")?;
        self.tape.event(number, What::Started);
        Ok(child)
    }

    /// Kills a worker, wherever it is in its work, and starts another in its place.
    pub(crate) async fn kill(&mut self, number: usize) -> Result<()> {
        if self.workers[number].try_wait()?.is_none() {
            self.tape.event(number, What::Killed);
            self.workers[number].kill().await?;
            self.kills += 1;
        } else {
            self.tape.event(number, What::Ended);
        }
        self.workers[number] = self.start(number)?;
        Ok(())
    }

    /// The same for the worker with this process id, if it is still there.
    pub(crate) async fn kill_pid(&mut self, pid: u32) -> Result<()> {
        match self.workers.iter().position(|worker| worker.id() == Some(pid)) {
            Some(number) => self.kill(number).await,
            None => Ok(()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Starts again what ended without being killed.
    pub(crate) fn look_after(&mut self) -> Result<()> {
        for number in 0..self.workers.len() {
            let Some(status) = self.workers[number].try_wait()? else {
                continue;
            };
            self.own_deaths += 1;
            self.tape.event(number, What::Ended);
            if self.own_deaths > OWN_DEATHS_MAX {
                bail!(
                    "worker processes keep exiting ({status}); the end of one log:\n{}",
                    self.last_words(number)
                );
            }
            self.workers[number] = self.start(number)?;
        }
        Ok(())
    }

    fn last_words(&self, number: usize) -> String {
        let text = std::fs::read_to_string(self.log(number)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Lets all workers finish their running jobs, for a moment, and then ends them.
    pub(crate) async fn dismiss(&mut self, patience: Duration) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            self.tape.event(number, What::Stopped);
            drop(worker.stdin.take());
        }
        let until = Instant::now() + patience;
        for mut worker in self.workers.drain(..) {
            if tokio::time::timeout_at(until.into(), worker.wait()).await.is_err() {
                // An error means that it is gone already.
                let _ = worker.kill().await;
            }
        }
    }
}
