//! A throw-away PostgreSQL server: made, started and stopped.
//!
//! It listens on a free port of 127.0.0.1, trusts everyone there, and keeps fsync on, as a user's
//! server does. The server is a direct child of this process, not of `pg_ctl`, so its end is seen
//! and it is stopped by its process id.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::owner::Owner;
use super::{Server, Use};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// A free port can be taken by another program before the server binds it; then the next is tried.
const PORTS_MAX: usize = 3;
const LOG_LINES_SHOWN: usize = 20;

/// The server's log, in the folder of its cluster.
pub(crate) const LOG: &str = "server.log";

/// A running server; dropped, it is stopped. Its folder goes with that of the run.
#[derive(Debug)]
pub(crate) struct Cluster {
    label: String,
    port: u16,
    dir: PathBuf,
    /// The process id the server wrote down itself once it was ready: right even when `postgres` is
    /// a script that starts it.
    pid: Option<u32>,
    child: Child,
}

impl Cluster {
    /// Makes a cluster in a new folder under `parent` and waits until it accepts connections.
    pub(crate) fn start(server: &Server, parent: &Path, purpose: Use) -> Result<Cluster> {
        let label = server.label();
        let dir = parent.join(&label);
        let owner = Owner::find()?;
        for folder in [dir.clone(), dir.join("socket")] {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&folder)
                .with_context(|| format!("could not make {}", folder.display()))?;
            owner.give(&folder)?;
        }
        initdb(server, &dir, owner)?;
        for _ in 1..PORTS_MAX {
            match Self::start_on_a_free_port(server, &dir, owner, purpose) {
                Err(error) if log_tail(&dir).contains("Address already in use") => {
                    crate::note(&format!("{label}: {error:#}; trying another port"));
                }
                outcome => return outcome,
            }
        }
        Self::start_on_a_free_port(server, &dir, owner, purpose)
    }

    fn start_on_a_free_port(server: &Server, dir: &Path, owner: Owner, purpose: Use) -> Result<Cluster> {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|l| l.local_addr())
            .context("no free port")?
            .port();
        let log = File::create(dir.join(LOG)).context("could not make the server's log")?;
        let own = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", dir.join("socket").display()),
        ];
        let settings = own.iter().map(String::as_str).chain(purpose.settings().iter().copied());
        let mut command = owner.command(&server.program("postgres"), dir);
        command.arg("-D").arg(dir.join("data"));
        for setting in settings {
            command.args(["-c", setting]);
        }
        command
            .stdout(log.try_clone().context("could not share the server's log")?)
            .stderr(log);
        let child = command.spawn().with_context(|| server.cannot_run("postgres"))?;
        let dir = dir.to_path_buf();
        let mut cluster = Cluster {
            label: server.label(),
            port,
            dir,
            pid: None,
            child,
        };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        format!("postgres://tester@127.0.0.1:{}/postgres", self.port)
    }

    /// The server writes its state into a file; no client program is needed to ask it.
    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                let log = log_tail(&self.dir);
                bail!("{} ended with {status} while starting; its log:\n{log}", self.label);
            }
            let text = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default();
            if let Some(pid) = parse_ready(&text) {
                self.pid = Some(pid);
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        let (label, log) = (&self.label, log_tail(&self.dir));
        bail!(
            "{label} was not ready after {} s; its log:\n{log}",
            START_LIMIT.as_secs()
        );
    }

    /// Immediate shutdown, as nothing is kept: it frees shared memory, which a plain kill would
    /// leave behind.
    fn stop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            if self.pid.is_some() {
                let (label, log) = (&self.label, log_tail(&self.dir));
                crate::note(&format!("{label} had ended by itself with {status}; its log:\n{log}"));
            }
            return;
        }
        let pid = self.pid.unwrap_or_else(|| self.child.id()).to_string();
        crate::keeper::signal("QUIT", &pid);
        let started = Instant::now();
        while started.elapsed() < STOP_LIMIT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(POLL);
        }
        crate::note(&format!(
            "{} did not stop in {} s; killing it",
            self.label,
            STOP_LIMIT.as_secs()
        ));
        crate::keeper::signal("KILL", &pid);
        let _ = self.child.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

fn initdb(server: &Server, dir: &Path, owner: Owner) -> Result<()> {
    let output = owner
        .command(&server.program("initdb"), dir)
        .arg("-D")
        .arg(dir.join("data"))
        // `--no-sync` spares only the flush of the freshly made files; the server itself keeps
        // fsync on.
        .args([
            "--username=tester",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ])
        .output()
        .with_context(|| server.cannot_run("initdb"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!(
            "initdb of {} ended with {}:\n{}",
            server.label(),
            output.status,
            text.trim_end()
        );
    }
    Ok(())
}

impl Server {
    fn cannot_run(&self, program: &str) -> String {
        let path = self.program(program);
        format!(
            "could not run {}; root starts it as postgres or nobody, who must be able to reach it",
            path.display()
        )
    }
}

/// The process id in `postmaster.pid`, once its eighth line says that the server accepts
/// connections.
fn parse_ready(text: &str) -> Option<u32> {
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    (lines.nth(6)?.trim() == "ready").then_some(pid)
}

fn log_tail(dir: &Path) -> String {
    let text = std::fs::read(dir.join(LOG)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_only_when_its_file_says_so() {
        let file = |state| format!("4711\n/data\n1700000000\n5432\n/socket\n127.0.0.1\n  123 0\n{state}\n");
        assert_eq!(parse_ready(&file("ready   ")), Some(4711));
        assert_eq!(parse_ready(&file("starting")), None);
        assert_eq!(parse_ready("4711\n/data\n"), None);
        assert_eq!(parse_ready(""), None);
    }
}
