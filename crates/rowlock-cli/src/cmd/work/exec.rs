//! A program as a handler: the payload on its standard input, facts in its environment, and its exit code decides.
//!
//! | exit code | the job | the call |
//! |---|---|---|
//! | 0 | done, with standard output as its result | happened |
//! | 65 (EX_DATAERR) | retired, with the end of standard error as the reason | did not happen, says the program |
//! | 75 (EX_TEMPFAIL) | tried again | did not happen, says the program |
//! | any other, a signal, the time limit | tried again | unknown |
//!
//! Never through a shell: the words are the program's arguments as they were given.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rowlock::Fail;
use rustix::process::Signal;
use serde_json::value::RawValue;
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, Command},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    Bounds,
    call::Call,
    group::{Group, REST_GRACE},
    pipe::{Head, Tail},
};

/// The time between SIGTERM and SIGKILL after the time limit.
pub(crate) const LIMIT_GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the rest of the output after all processes have ended.
const DRAIN: Duration = Duration::from_millis(500);

/// The job cannot be done as it is.
const DATA_ERROR: i32 = 65;
/// Nothing was done; try again.
const TRY_AGAIN: i32 = 75;

/// How much of standard error an error holds.
const ERROR_BYTES_MAX: usize = 4096;

/// A program with its arguments.
#[derive(Debug)]
pub(crate) struct Program {
    /// What the user calls it.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) args: Vec<String>,
    /// The tasks that end programs that nobody waits for any more.
    pub(crate) enders: TaskTracker,
}

impl Program {
    /// Runs it once. If this is dropped half-way, the program and what it started are ended.
    pub(crate) async fn run(&self, call: &Call, bounds: &Bounds) -> Result<Box<RawValue>, Fail> {
        let mut command = self.command(call);
        let started = Group::spawn(&mut command, &self.enders);
        let mut group = started.map_err(|error| self.fail("could not be started", &error.to_string()).not_done())?;
        let pipes = group
            .child
            .as_mut()
            .map(|child| (child.stdin.take(), child.stdout.take(), child.stderr.take()));
        let Some((stdin, Some(stdout), Some(stderr))) = pipes else {
            return Err(self.fail("could not be started", "it has no pipes"));
        };
        let mut output = Head::new(bounds.output_bytes_max);
        let mut errors = Tail::new(bounds.output_bytes_max.min(ERROR_BYTES_MAX));
        let ended = {
            let mut reading = pin!(async {
                tokio::join!(feed(stdin, &call.payload), output.fill(stdout), errors.fill(stderr));
            });
            let mut read = false;
            let deadline = Instant::now() + bounds.time_limit;
            let ended = loop {
                tokio::select! {
                    status = group.wait() => break Some(status),
                    () = &mut reading, if !read => read = true,
                    () = sleep_until(deadline) => break None,
                }
            };
            // Go on reading, so that a process that was asked to end does not wait for its output to be read.
            let grace = ended.as_ref().map_or(LIMIT_GRACE, |_| REST_GRACE);
            let mut ending = pin!(group.end(grace));
            loop {
                tokio::select! {
                    () = &mut ending => break,
                    () = &mut reading, if !read => read = true,
                }
            }
            if !read {
                // A process that left the group may hold the pipes for as long as it likes.
                let _ = timeout(DRAIN, &mut reading).await;
            }
            ended
        };
        let said = errors.text();
        match ended {
            None => Err(self.fail(
                &format!("was killed: it ran longer than {:?}", bounds.time_limit),
                &said,
            )),
            Some(Err(error)) => Err(self.fail("could not be waited for", &error.to_string())),
            Some(Ok(status)) => self.judge(status, &output, &said),
        }
    }

    fn judge(&self, status: ExitStatus, output: &Head, said: &str) -> Result<Box<RawValue>, Fail> {
        use std::os::unix::process::ExitStatusExt;
        let Some(code) = status.code() else {
            let signal = status.signal().unwrap_or_default();
            let name = signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned);
            return Err(self.fail(&format!("was killed by signal {name}"), said));
        };
        let fail = || self.fail(&format!("exited with {code}"), said);
        match code {
            0 => Ok(output.result()),
            DATA_ERROR => Err(Fail::retire(self.text(&format!("exited with {code}"), said)).not_done()),
            TRY_AGAIN => Err(fail().not_done()),
            _ => Err(fail()),
        }
    }

    fn text(&self, what: &str, said: &str) -> String {
        match said.is_empty() {
            true => format!("{} {what}", self.name),
            false => format!("{} {what}: {said}", self.name),
        }
    }

    fn fail(&self, what: &str, said: &str) -> Fail {
        Fail::retry(self.text(what, said))
    }

    fn command(&self, call: &Call) -> Command {
        let mut command = Command::new(&self.file);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        for (name, value) in call.facts() {
            command.env(format!("ROWLOCK_{name}"), value);
        }
        command.env("ROWLOCK_EFFECT_KEY", &call.key);
        for (name, value) in call.trace() {
            let name = name.to_ascii_uppercase();
            match value {
                Some(value) => command.env(name, value),
                // Remove the worker's trace context: it is not the job's.
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Variables that name the worker's database or its secrets: a program that needs one of them is given its own.
fn is_ours(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("ROWLOCK_") || name.starts_with("PG")
}

/// A program that does not read to the end is no error.
async fn feed(stdin: Option<ChildStdin>, payload: &str) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(payload.as_bytes()).await;
        let _ = stdin.shutdown().await;
    }
}

/// As people know them.
fn signal_name(number: i32) -> Option<&'static str> {
    let known = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::ILL, "ILL"),
        (Signal::ABORT, "ABRT"),
        (Signal::BUS, "BUS"),
        (Signal::FPE, "FPE"),
        (Signal::KILL, "KILL"),
        (Signal::SEGV, "SEGV"),
        (Signal::PIPE, "PIPE"),
        (Signal::TERM, "TERM"),
    ];
    known
        .into_iter()
        .find(|(signal, _)| signal.as_raw() == number)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_database_and_its_secrets_stay_here() {
        for name in ["ROWLOCK_DATABASE", "ROWLOCK_CONFIG", "PGPASSWORD", "PGHOST"] {
            assert!(is_ours(&name.into()), "{name}");
        }
        for name in ["PATH", "HOME", "DATABASE_URL", "MY_PGHOST"] {
            assert!(!is_ours(&name.into()), "{name}");
        }
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(9), Some("KILL"));
        assert_eq!(signal_name(15), Some("TERM"));
        assert_eq!(signal_name(77), None);
    }
}
