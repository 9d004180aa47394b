//! Runs a program's verb and reads the JSON lines it prints.
//!
//! Each process has its own group, which is killed when its time is up, when it is dropped, and when the run is
//! interrupted: no program outlives its measurement.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::programs::Program;

/// A program is asked to give up at its limit; this much later it is killed.
const GRACE: Duration = Duration::from_secs(15);
const TAIL_CHARS: usize = 600;

/// Groups that are running; read only when the run ends early.
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// How a verb ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// Everything it printed, the last line last.
    Done(Vec<Value>),
    Stalled {
        done: f64,
    },
    Unsupported(String),
    Failed(String),
}

/// Runs a verb to its end.
pub(crate) async fn run(program: &Program, url: &str, words: &[&str], limit_s: u64) -> Said {
    let limit_word = limit_s.to_string();
    let words: Vec<&str> = words.iter().copied().chain(["--limit-s", &limit_word]).collect();
    let mut running = match Running::start(program, url, &words) {
        Ok(running) => running,
        Err(error) => return Said::Failed(format!("{error:#}")),
    };
    let deadline = Instant::now() + Duration::from_secs(limit_s) + GRACE;
    let mut lines = Vec::new();
    loop {
        match timeout_at(deadline, running.lines.next_line()).await {
            Err(_) => {
                running.kill();
                return Said::Stalled { done: done(&lines) };
            }
            Ok(Ok(Some(line))) => lines.push(line),
            Ok(Ok(None) | Err(_)) => break,
        }
    }
    let (ok, tail) = running.end(deadline).await;
    judge(&lines, ok, &tail)
}

/// What the lines of an ended program mean.
fn judge(lines: &[String], ok: bool, tail: &str) -> Said {
    let mut said = Vec::new();
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(value) => said.push(value),
            Err(_) => return Said::Failed(format!("printed a line that is not JSON: {}", cut(line))),
        }
    }
    let event = |value: &Value| value["event"].as_str().unwrap_or_default().to_owned();
    if let Some(value) = said.iter().find(|value| event(value) == "unsupported") {
        return Said::Unsupported(value["why"].as_str().unwrap_or("no reason given").to_owned());
    }
    if let Some(value) = said.iter().find(|value| event(value) == "stalled") {
        let done = value["done"].as_f64().unwrap_or_default();
        return Said::Stalled { done };
    }
    if !ok {
        return Said::Failed(format!("ended with an error: {}", cut(tail)));
    }
    if said.is_empty() {
        return Said::Failed("printed nothing".to_owned());
    }
    Said::Done(said)
}

fn done(lines: &[String]) -> f64 {
    let last = lines
        .iter()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    last.filter_map(|value| value["done"].as_f64())
        .next()
        .unwrap_or_default()
}

/// The end of a text, on one line.
fn cut(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = flat.chars().count().saturating_sub(TAIL_CHARS);
    flat.chars().skip(skipped).collect()
}

/// A program that is running a verb.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    tail: Option<JoinHandle<String>>,
    group: i32,
    /// Waited for and swept up; its number may belong to somebody else by now.
    is_over: bool,
}

impl Running {
    pub(crate) fn start(program: &Program, url: &str, words: &[&str]) -> Result<Running> {
        let mut command = program.command();
        command
            .args(words)
            .env("DATABASE_URL", url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("could not start {}", program.name))?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .context("it has no process id")?;
        live().insert(group);
        let stdout = child.stdout.take().context("it has no output")?;
        let stderr = child.stderr.take().context("it has no error output")?;
        Ok(Running {
            child,
            lines: BufReader::new(stdout).lines(),
            tail: Some(tokio::spawn(read_tail(stderr))),
            group,
            is_over: false,
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.group
    }

    /// The next line with this event; an error when it does not come in time.
    pub(crate) async fn wait_for(&mut self, event: &str, within: Duration) -> Result<Value> {
        let deadline = Instant::now() + within;
        loop {
            let line = timeout_at(deadline, self.lines.next_line())
                .await
                .map_err(|_| anyhow!("did not print `{event}` within {} s", within.as_secs()))?
                .context("could not read its output")?;
            let Some(line) = line else {
                let (_, tail) = self.finish(deadline).await;
                return Err(anyhow!("ended without printing `{event}`: {}", cut(&tail)));
            };
            let value: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {}", cut(&line)))?;
            if value["event"] == event {
                return Ok(value);
            }
            if value["event"] == "unsupported" {
                return Err(anyhow!(
                    "unsupported: {}",
                    value["why"].as_str().unwrap_or("no reason given")
                ));
            }
        }
    }

    /// Ends the whole group immediately, as a crash would.
    pub(crate) fn kill(&self) {
        if !self.is_over {
            kill_group(self.group);
        }
    }

    async fn end(mut self, deadline: Instant) -> (bool, String) {
        self.finish(deadline).await
    }

    async fn finish(&mut self, deadline: Instant) -> (bool, String) {
        let status = timeout_at(deadline, self.child.wait()).await;
        self.kill();
        self.is_over = status.is_ok();
        let tail = match self.tail.take() {
            // A grandchild may hold the pipe open; its text is not worth waiting for.
            Some(tail) => timeout(Duration::from_secs(2), tail).await.ok().and_then(Result::ok),
            None => None,
        };
        (
            matches!(status, Ok(Ok(status)) if status.success()),
            tail.unwrap_or_default(),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        live().remove(&self.group);
    }
}

/// Ends whatever is still running.
pub(crate) fn end_all() {
    let groups: Vec<i32> = live().iter().copied().collect();
    groups.into_iter().for_each(kill_group);
}

fn live() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill_group(group: i32) {
    if let Some(pid) = Pid::from_raw(group) {
        // It may be gone already, which is what was wanted.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

async fn read_tail(stderr: ChildStderr) -> String {
    let mut reader = BufReader::new(stderr);
    let (mut kept, mut piece) = (Vec::new(), [0_u8; 4096]);
    while let Ok(read @ 1..) = reader.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        let skipped = kept.len().saturating_sub(4 * TAIL_CHARS);
        kept.drain(..skipped);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn the_lines_of_a_good_end_are_what_was_said() {
        let said = judge(&lines(&[r#"{"event":"drained","jobs":5,"seconds":0.5}"#, ""]), true, "");
        let Said::Done(values) = said else { panic!("{said:?}") };
        assert_eq!(values.len(), 1);
        assert_eq!(values[0]["seconds"], 0.5);
    }

    #[test]
    fn unsupported_and_stalled_are_told_from_failures() {
        let unsupported = judge(&lines(&[r#"{"event":"unsupported","why":"no batch"}"#]), true, "");
        assert_eq!(unsupported, Said::Unsupported("no batch".to_owned()));
        let stalled = judge(&lines(&[r#"{"event":"stalled","done":12}"#]), true, "");
        assert_eq!(stalled, Said::Stalled { done: 12.0 });
        let failed = judge(&lines(&[r#"{"event":"ready"}"#]), false, "panicked\nat line 3");
        assert_eq!(
            failed,
            Said::Failed("ended with an error: panicked at line 3".to_owned())
        );
        assert_eq!(judge(&[], true, ""), Said::Failed("printed nothing".to_owned()));
    }

    #[test]
    fn a_line_that_is_not_json_is_a_failure() {
        let said = judge(&lines(&["hello"]), true, "");
        assert_eq!(said, Said::Failed("printed a line that is not JSON: hello".to_owned()));
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_killed_with_its_children() {
        let program = Program::for_test("sh", &["-c", r#"echo '{"event":"started"}'; sleep 600 & sleep 600"#]);
        let mut running = Running::start(&program, "postgres://nowhere", &[]).unwrap();
        running.wait_for("started", Duration::from_secs(20)).await.unwrap();
        running.kill();
        let (ok, _) = running.end(Instant::now() + Duration::from_secs(20)).await;
        assert!(!ok);
    }

    #[tokio::test]
    async fn the_address_is_in_the_environment_and_the_limit_is_given() {
        let script = r#"echo "{\"event\":\"ready\",\"url\":\"$DATABASE_URL\",\"verb\":\"$0\",\"limit\":$2}""#;
        let program = Program::for_test("sh", &["-c", script]);
        let said = run(&program, "sqlite:/x", &["setup"], 9).await;
        let Said::Done(values) = said else { panic!("{said:?}") };
        assert_eq!(values[0]["url"], "sqlite:/x");
        assert_eq!(values[0]["verb"], "setup");
        assert_eq!(values[0]["limit"], 9);
    }
}
