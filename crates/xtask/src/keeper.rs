//! Owns the servers and the temporary folder of a run, and outlives it by a moment to clean up.
//!
//! The keeper is a second process of this program, with its standard input tied to the first. When
//! the first ends, in whatever way (done, failed, ctrl-c, SIGTERM, even SIGKILL), that input ends
//! too; the keeper then stops the step still running, stops the servers and removes the folder. A
//! signal handler would need a dependency and would miss SIGKILL; this needs neither. It has its
//! own process group, so that ctrl-c in a terminal does not reach it.
//!
//! Keeper to run, on its standard output: `dir <path>`, `server <label> <url>` for each, `ready`.
//! Run to keeper, on its standard input: `step <process group>`, and `step` when that has ended.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::postgres::{Cluster, Server, Use};

/// The hidden command that makes this program the keeper.
pub(crate) const COMMAND: &str = "keep";

/// The run's side of its keeper; dropped, it waits until everything is cleaned up.
#[derive(Debug)]
pub(crate) struct Keeper {
    process: Child,
    line: Option<ChildStdin>,
    /// Removed at the end of the run.
    pub(crate) dir: PathBuf,
    /// Label and address of each server, lowest version first.
    pub(crate) servers: Vec<(String, String)>,
}

impl Keeper {
    /// Starts a keeper, which starts the servers.
    pub(crate) fn start(servers: &[Server], purpose: Use) -> Result<Keeper> {
        let program = std::env::current_exe().context("could not find this program's own file")?;
        let mut command = Command::new(program);
        command.arg(COMMAND).arg(word(purpose));
        for server in servers {
            command.arg(server.major.to_string()).arg(&server.bin_dir);
        }
        let mut process = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start the keeper")?;
        let line = process.stdin.take();
        let output = process.stdout.take().context("the keeper has no output")?;
        let mut keeper = Keeper {
            process,
            line,
            dir: PathBuf::new(),
            servers: Vec::new(),
        };
        for said in BufReader::new(output).lines() {
            let said = said.context("could not read from the keeper")?;
            match said.split(' ').collect::<Vec<_>>().as_slice() {
                ["ready"] => return Ok(keeper),
                ["server", label, url] => keeper.servers.push(((*label).to_owned(), (*url).to_owned())),
                ["dir", ..] => keeper.dir = said["dir ".len()..].into(),
                _ => bail!("the keeper said `{said}`, which it should not"),
            }
        }
        bail!("the servers did not start; the reason is above");
    }

    /// The addresses in the form the tests read from `ROWLOCK_TEST_PG_URLS`.
    pub(crate) fn urls(&self) -> String {
        let pairs: Vec<String> = self
            .servers
            .iter()
            .map(|(label, url)| format!("{label}={url}"))
            .collect();
        pairs.join(" ")
    }

    /// Names the process group to stop should this process end; `None` when it has ended.
    pub(crate) fn watch(&mut self, group: Option<u32>) -> Result<()> {
        let line = self.line.as_mut().context("the keeper is gone")?;
        match group {
            Some(group) => writeln!(line, "step {group}"),
            None => writeln!(line, "step"),
        }
        .context("the keeper has ended before its run; start again")
    }

    /// Waits for the keeper to end by itself, which it does only when something went wrong.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let status = self.process.wait().context("could not wait for the keeper")?;
        bail!("the keeper ended with {status} before its run");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.line = None;
        let _ = self.process.wait();
    }
}

fn word(purpose: Use) -> &'static str {
    match purpose {
        Use::Tests => "tests",
        Use::Bench => "bench",
    }
}

/// The keeper itself: `args` are what the servers are for, then pairs of a major version and a folder of programs.
pub(crate) fn keep(args: &[&str]) -> Result<ExitCode> {
    let (purpose, args) = match args {
        ["tests", rest @ ..] => (Use::Tests, rest),
        ["bench", rest @ ..] => (Use::Bench, rest),
        _ => bail!("the keeper is started by this program's other commands only"),
    };
    let folder = Folder::make(&std::env::temp_dir())?;
    say(&format!("dir {}", folder.0.display()));
    let mut clusters = Vec::new();
    for pair in args.chunks_exact(2) {
        let major = pair[0].parse().context("not a major version")?;
        let server = Server {
            major,
            bin_dir: pair[1].into(),
        };
        let cluster = Cluster::start(&server, &folder.0, purpose)?;
        say(&format!("server {} {}", cluster.label(), cluster.url()));
        clusters.push(cluster);
    }
    say("ready");
    if let Some(group) = group_left_running(std::io::stdin().lock()) {
        signal("TERM", &format!("-{group}"));
    }
    drop(clusters);
    Ok(ExitCode::SUCCESS)
}

/// The run may be gone already; then nobody listens, and the end of standard input says so a moment
/// later.
fn say(line: &str) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Reads to the end of the run; the process group named last is still running.
fn group_left_running(input: impl BufRead) -> Option<u32> {
    let mut group = None;
    for line in input.lines().map_while(Result::ok) {
        group = line.strip_prefix("step ").and_then(|number| number.parse().ok());
    }
    group
}

/// Sends a signal to a process, or with a leading `-` to a process group. std can only kill; a
/// shell is everywhere.
pub(crate) fn signal(name: &str, target: &str) {
    let script = r#"kill -s "$0" -- "$1""#;
    let _ = Command::new("sh")
        .args(["-c", script, name, target])
        .stderr(Stdio::null())
        .status();
}

/// The run's temporary folder.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make(parent: &Path) -> Result<Folder> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = parent.join(format!("rowlock-{}-{:x}", std::process::id(), since.subsec_nanos()));
        // Open to others for the server's user, who owns a folder in it.
        let made = std::fs::DirBuilder::new().mode(0o755).create(&path);
        made.with_context(|| format!("could not make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            crate::note(&format!(
                "could not remove {}: {error}; remove it by hand",
                self.0.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_step_named_last_is_left_running() {
        assert_eq!(group_left_running("".as_bytes()), None);
        assert_eq!(group_left_running("step 7\n".as_bytes()), Some(7));
        assert_eq!(group_left_running("step 7\nstep\n".as_bytes()), None);
        assert_eq!(group_left_running("step 7\nstep\nstep 9\n".as_bytes()), Some(9));
    }
}
