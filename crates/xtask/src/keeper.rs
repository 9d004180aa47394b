//! Owns the servers and the temporary folder of a run, and outlives it by a moment to clean up.
//!
//! The keeper is a second process of this program, with its standard input tied to the first. When
//! the first ends, in whatever way (done, failed, ctrl-c, SIGTERM, even SIGKILL), that input ends
//! too; the keeper then stops the step still running, stops the servers and removes the folder. A
//! signal handler would need a dependency and would miss SIGKILL; this needs neither. It has its
//! own process group, so that ctrl-c in a terminal does not reach it.
//!
//! Keeper to run, on its standard output: `dir <path>`, `server <label> <url>` for each, `ready`.
//! Run to keeper, on its standard input: `step <process group>`, and `step` when that has ended; `serve <emulator>
//! <interpreter>`, which the keeper answers by `server <emulator> <url>` or `failed <emulator> <why>`.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::machine::emulator::{self, Running};
use crate::machine::postgres::{Cluster, Server, Use};
use crate::test::times::Times;

/// The least that must be free in memory for the folder of a run: servers, their logs and the tests' files take one.
const MEMORY_KIB_MIN: u64 = 4 << 20;

/// The hidden command that makes this program the keeper.
pub(crate) const COMMAND: &str = "keep";

/// The folder for the tests' files, in that of the run.
const TMP: &str = "tmp";

/// The run's side of its keeper; dropped, it waits until everything is cleaned up.
#[derive(Debug)]
pub(crate) struct Keeper {
    process: Child,
    line: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    /// Removed at the end of the run.
    pub(crate) dir: PathBuf,
    /// Label and address of each server, lowest version first.
    pub(crate) servers: Vec<(String, String)>,
    /// Where the time of the run goes.
    pub(crate) times: Times,
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
            said: BufReader::new(output),
            dir: PathBuf::new(),
            servers: Vec::new(),
            times: Times::default(),
        };
        while let Some(said) = keeper.hear()? {
            match said.split(' ').collect::<Vec<_>>().as_slice() {
                ["ready"] => return Ok(keeper),
                ["server", label, url] => keeper.servers.push(((*label).to_owned(), (*url).to_owned())),
                ["dir", ..] => keeper.dir = said["dir ".len()..].into(),
                _ => bail!("the keeper said `{said}`, which it should not"),
            }
        }
        bail!("the servers did not start; the reason is above");
    }

    /// Starts an emulator with this interpreter; gives its address.
    pub(crate) fn serve(&mut self, emulator: &str, python: &str) -> Result<String> {
        let line = self.line.as_mut().context("the keeper is gone")?;
        writeln!(line, "serve {emulator} {python}").context("the keeper has ended before its run; start again")?;
        let said = self
            .hear()?
            .context("the keeper has ended before its run; start again")?;
        match said.splitn(3, ' ').collect::<Vec<_>>().as_slice() {
            ["server", _, url] => Ok((*url).to_owned()),
            ["failed", _, why] => bail!("{why}"),
            _ => bail!("the keeper said `{said}`, which it should not"),
        }
    }

    /// What the keeper says next; `None` when it is gone.
    fn hear(&mut self) -> Result<Option<String>> {
        let mut said = String::new();
        let read = self
            .said
            .read_line(&mut said)
            .context("could not read from the keeper")?;
        Ok((read > 0).then(|| said.trim_end().to_owned()))
    }

    /// The addresses in the form the tests read from `ROWLOCK_TEST_PG_URLS`.
    pub(crate) fn urls(&self) -> String {
        urls(self.servers.iter())
    }

    /// The same of the newest server alone.
    pub(crate) fn newest(&self) -> String {
        urls(self.servers.iter().rev().take(1))
    }

    /// The same of all servers but the newest.
    pub(crate) fn others(&self) -> String {
        urls(self.servers.iter().rev().skip(1))
    }

    /// Where the tests put their files.
    pub(crate) fn tmp(&self) -> String {
        self.dir.join(TMP).to_string_lossy().into_owned()
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

fn urls<'a>(servers: impl Iterator<Item = &'a (String, String)>) -> String {
    let pairs: Vec<String> = servers.map(|(label, url)| format!("{label}={url}")).collect();
    pairs.join(" ")
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
    let folder = Folder::make(&parent(purpose))?;
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
    let mut emulators = Vec::new();
    let group = group_left_running(std::io::stdin().lock(), |line| {
        emulators.extend(serve(line, &folder.0));
    });
    if let Some(group) = group {
        signal("TERM", &format!("-{group}"));
    }
    drop(emulators);
    drop(clusters);
    Ok(ExitCode::SUCCESS)
}

/// Starts the emulator that a line asks for, and says how that went.
fn serve(line: &str, dir: &Path) -> Option<Running> {
    let (name, python) = line.split_once(' ')?;
    let started = emulator::named(name).context("there is no emulator of this name");
    match started.and_then(|emulator| emulator.start(Path::new(python), dir)) {
        Ok(running) => {
            say(&format!("server {name} {}", running.url()));
            Some(running)
        }
        Err(error) => {
            say(&format!("failed {name} {}", one_line(&format!("{error:#}"))));
            None
        }
    }
}

/// The protocol has lines; a reason may have more than one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The run may be gone already; then nobody listens, and the end of standard input says so a moment
/// later.
fn say(line: &str) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Reads to the end of the run; the process group named last is still running. `serve` gets what is asked for
/// meanwhile.
fn group_left_running(input: impl BufRead, mut serve: impl FnMut(&str)) -> Option<u32> {
    let mut group = None;
    for line in input.lines().map_while(Result::ok) {
        match line.strip_prefix("serve ") {
            Some(asked) => serve(asked),
            None => group = line.strip_prefix("step ").and_then(|number| number.parse().ok()),
        }
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

/// Where the run's folder goes. For tests it is in memory if there is enough, because a disk that is synced for every
/// database that a test makes and drops takes longer than the tests. `TMPDIR` overrides this.
fn parent(purpose: Use) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let wanted = matches!(purpose, Use::Tests) && std::env::var_os("TMPDIR").is_none();
    match wanted && free_kib(memory) >= MEMORY_KIB_MIN {
        true => memory.to_path_buf(),
        false => std::env::temp_dir(),
    }
}

/// What `df` says; nothing where it says nothing.
fn free_kib(folder: &Path) -> u64 {
    let said = Command::new("df")
        .args(["--output=avail", "-k"])
        .arg(folder)
        .stderr(Stdio::null())
        .output();
    let text = said
        .map(|said| String::from_utf8_lossy(&said.stdout).into_owned())
        .unwrap_or_default();
    text.lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .unwrap_or(0)
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
        // Programs of the tests run as other users too.
        let files = path.join(TMP);
        std::fs::create_dir(&files)
            .and_then(|()| std::fs::set_permissions(&files, Permissions::from_mode(0o1777)))
            .with_context(|| format!("could not make {}", files.display()))?;
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

    fn left_running(said: &str) -> Option<u32> {
        group_left_running(said.as_bytes(), |_| ())
    }

    #[test]
    fn only_the_step_named_last_is_left_running() {
        assert_eq!(left_running(""), None);
        assert_eq!(left_running("step 7\n"), Some(7));
        assert_eq!(left_running("step 7\nstep\n"), None);
        assert_eq!(left_running("step 7\nstep\nstep 9\n"), Some(9));
    }

    #[test]
    fn what_is_asked_for_during_a_step_does_not_end_it() {
        let mut asked = Vec::new();
        let group = group_left_running("step 7\nserve moto /a folder/python\n".as_bytes(), |line| {
            asked.push(line.to_owned())
        });
        assert_eq!((group, asked), (Some(7), vec!["moto /a folder/python".to_owned()]));
    }

    #[test]
    fn a_reason_of_several_lines_is_said_in_one() {
        assert_eq!(one_line("it ended:\n  no module\n"), "it ended: no module");
    }
}
