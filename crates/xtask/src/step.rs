//! One command of a run, most often cargo's, its output streamed as it comes.
//!
//! Each step has its own process group, named to the keeper, so that a run that is killed takes its
//! compilers and tests with it. The output of a test runner passes through here to be counted; that
//! of other steps does not.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::test::report::{Counts, Runner, without_colour};
use crate::test::times::Times;

/// A command, run at the root of the workspace.
#[derive(Debug)]
pub(crate) struct Step {
    name: String,
    /// What the closing table calls it, if not by its command.
    called: Option<&'static str>,
    began: Instant,
    command: Command,
}

impl Step {
    /// `cargo` with these arguments, separated by spaces.
    pub(crate) fn cargo(args: &str) -> Step {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args.split(' '));
        // `cargo run` describes this crate to us in these; a build script that watches them would
        // run again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        Step::of(&format!("cargo {args}"), command)
    }

    /// Any command, by a name to call it.
    pub(crate) fn of(name: &str, mut command: Command) -> Step {
        command.current_dir(workspace_root()).stdin(Stdio::null());
        Step {
            name: name.to_owned(),
            called: None,
            began: Instant::now(),
            command,
        }
    }

    /// What the closing table calls it.
    pub(crate) fn called(mut self, name: &'static str) -> Step {
        self.called = Some(name);
        self
    }

    /// Adds arguments as they are, spaces and all.
    pub(crate) fn args(mut self, args: &[String]) -> Step {
        self.command.args(args);
        self
    }

    /// Keeps this lock for as long as the command runs, even should this process be killed: it is the command's
    /// standard input, which is at its end.
    pub(crate) fn holding(mut self, lock: &File) -> Result<Step> {
        let lock = lock.try_clone().context("could not share the lock")?;
        self.command.stdin(lock);
        Ok(self)
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Step {
        self.command.env(name, value);
        self
    }

    /// Adds flags to those the caller of this program has set.
    pub(crate) fn flags(self, name: &str, flags: &str) -> Step {
        let given = std::env::var(name).unwrap_or_default();
        if given.contains(flags) {
            // Said twice, they would be other flags to cargo, and everything would be built again.
            return self;
        }
        let all = format!("{given} {flags}");
        self.env(name, all.trim())
    }

    /// Runs to the end and gives the command's own exit code; a signal counts as 1.
    pub(crate) fn run_for_code(mut self, keeper: &mut Keeper) -> Result<u8> {
        let mut child = self.start(keeper)?;
        let status = child
            .wait()
            .with_context(|| format!("could not wait for {}", self.name))?;
        self.ended(keeper)?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }

    /// Runs to the end; fails when the command does.
    pub(crate) fn run(mut self, keeper: &mut Keeper) -> Result<()> {
        let child = self.start(keeper)?;
        self.finish(child, keeper)
    }

    /// Runs to the end with its output in a file; fails with the last line of it when the command does.
    pub(crate) fn run_quietly(mut self, keeper: &mut Keeper, log: &Path) -> Result<()> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("could not make {}", log.display()))?;
        let both = file.try_clone().context("could not share the log")?;
        self.command.stdout(both).stderr(file);
        let child = self.start(keeper)?;
        self.finish(child, keeper).with_context(|| {
            let text = std::fs::read(log).unwrap_or_default();
            last_line(&String::from_utf8_lossy(&text))
        })
    }

    /// Runs to the end and gives what it printed on standard output; fails when the command does.
    pub(crate) fn run_for_output(mut self, keeper: &mut Keeper) -> Result<String> {
        self.command.stdout(Stdio::piped());
        let mut child = self.start(keeper)?;
        let mut printed = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout
                .read_to_end(&mut printed)
                .with_context(|| format!("could not read what {} prints", self.name))?;
        }
        self.finish(child, keeper)?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs a test runner to the end and adds its closing lines to `counts`, also when it fails.
    pub(crate) fn run_counted(mut self, runner: Runner, keeper: &mut Keeper, counts: &mut Counts) -> Result<()> {
        if std::io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
            self.command.env("CARGO_TERM_COLOR", "always");
        }
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.start(keeper)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ((counted, times), (more, more_times)) = std::thread::scope(|scope| {
            let other = scope.spawn(|| pass_on(runner, stderr, std::io::stderr()));
            (
                pass_on(runner, stdout, std::io::stdout()),
                other.join().unwrap_or_default(),
            )
        });
        counts.add(counted);
        counts.add(more);
        keeper.times.add(times);
        keeper.times.add(more_times);
        self.finish(child, keeper)
    }

    fn start(&mut self, keeper: &mut Keeper) -> Result<Child> {
        crate::note(&format!("==> {}", self.name));
        self.began = Instant::now();
        let child = self.command.process_group(0).spawn();
        let child = child.with_context(|| format!("could not run {}", self.name))?;
        let watched = keeper.watch(Some(child.id()));
        if watched.is_err() {
            crate::keeper::signal("TERM", &format!("-{}", child.id()));
        }
        watched.map(|()| child)
    }

    fn ended(&self, keeper: &mut Keeper) -> Result<()> {
        let name = self.called.unwrap_or(&self.name);
        keeper.times.step(name, self.began.elapsed());
        keeper.watch(None)
    }

    fn finish(&self, mut child: Child, keeper: &mut Keeper) -> Result<()> {
        let status = child
            .wait()
            .with_context(|| format!("could not wait for {}", self.name))?;
        self.ended(keeper)?;
        if !status.success() {
            bail!("{} failed with {status}", self.name);
        }
        Ok(())
    }
}

/// Whether `cargo nextest` is installed.
pub(crate) fn has_nextest() -> bool {
    let mut probe = Step::cargo("nextest --version").command;
    probe
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Copies line by line until the writer is gone, counting tests on the way.
fn pass_on(runner: Runner, input: Option<impl Read>, mut output: impl Write) -> (Counts, Times) {
    let (mut counts, mut times) = (Counts::default(), Times::default());
    let Some(input) = input else { return (counts, times) };
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while matches!(input.read_until(b'\n', &mut line), Ok(1..)) {
        // A reader who left must not stop the tests half-way.
        let _ = output.write_all(&line).and_then(|()| output.flush());
        let text = without_colour(&String::from_utf8_lossy(&line));
        counts.add_line(runner, &text);
        times.add_line(&text);
        line.clear();
    }
    (counts, times)
}

/// The last line of a log that says something.
pub(crate) fn last_line(log: &str) -> String {
    let line = log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it said nothing").to_owned()
}

/// cargo tells where this crate is; its grandparent is the workspace.
pub(crate) fn workspace_root() -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = crate_dir.as_deref().and_then(|dir| dir.ancestors().nth(2));
    root.map_or_else(|| ".".into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_the_reason() {
        assert_eq!(last_line("a\n  no such package\n\n"), "no such package");
        assert_eq!(last_line("\n"), "it said nothing");
    }
}
