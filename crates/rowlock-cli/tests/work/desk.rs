//! A database with jobs, and workers of the real binary whose handlers are small shell programs.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

use crate::common::{self, Database, Said, postgres_urls, until};

/// Runs a test on SQLite and on every PostgreSQL of this run.
pub(crate) fn on_each(test: impl Fn(&Desk)) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("app.db").display());
    test(&Desk::new(url));
    for server in postgres_urls() {
        let database = Database::fresh(&server);
        test(&Desk::new(database.url.clone()));
    }
}

pub(crate) struct Desk {
    pub(crate) url: String,
    folder: tempfile::TempDir,
}

impl Desk {
    fn new(url: String) -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let desk = Desk { url, folder };
        assert_eq!(desk.run(&["migrate"]).code, Some(0));
        desk
    }

    pub(crate) fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = common::command(args);
        command
            .env("ROWLOCK_DATABASE", &self.url)
            .current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        common::said(self.command(args))
    }

    /// A file that programs write to and tests look at.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// `kind` as a shell program; it runs in the desk's folder.
    pub(crate) fn shell(&self, kind: &str, script: &str) -> String {
        format!("{kind}={}", serde_json::json!(["sh", "-c", script]))
    }

    pub(crate) fn enqueue(&self, kind: &str, payload: &str, more: &[&str]) -> i64 {
        let said = self.run(&[&["enqueue", kind, payload], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out.trim().parse().unwrap()
    }

    /// Works until nothing is left.
    pub(crate) fn work(&self, args: &[&str]) -> Said {
        let said = self.run(&[&["work", "--until-empty"], args].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
        said
    }

    /// Works until it is stopped; what it says goes to a file of the desk's folder.
    pub(crate) fn start(&self, log: &str, args: &[&str]) -> Working {
        let mut command = self.command(&[&["work"], args].concat());
        let log = std::fs::File::create(self.file(log)).unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Working(child)
    }

    /// Freezes it at a moment when it holds no lock that everybody needs. On SQLite its heartbeat may hold the write
    /// lock for an instant, and a process frozen right then would stop all the others, as it says in the documentation.
    pub(crate) fn freeze(&self, worker: &Working) {
        loop {
            worker.signal(Signal::STOP);
            self.until("the worker to stand still", || worker.stands_still());
            if !self.url.starts_with("sqlite") || self.write_lock_is_free() {
                return;
            }
            worker.signal(Signal::CONT);
        }
    }

    fn write_lock_is_free(&self) -> bool {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let options: SqliteConnectOptions = self.url.parse().unwrap();
            let mut conn = options.busy_timeout(Duration::ZERO).connect().await.unwrap();
            let tried = sqlx::raw_sql("begin immediate; rollback").execute(&mut conn).await;
            tried.is_ok()
        })
    }

    pub(crate) fn inspect(&self, id: i64) -> Value {
        let said = self.run(&["inspect", &id.to_string(), "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    /// How each attempt ended, oldest first.
    pub(crate) fn outcomes(&self, id: i64) -> Vec<String> {
        let job = self.inspect(id);
        let attempts = job["attempts"].as_array().unwrap();
        let mut ends: Vec<(i64, String)> = attempts
            .iter()
            .map(|attempt| {
                (
                    attempt["epoch"].as_i64().unwrap(),
                    attempt["outcome"].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        ends.sort();
        ends.into_iter().map(|(_, end)| end).collect()
    }

    pub(crate) fn errors(&self, id: i64) -> String {
        self.inspect(id)["attempts"].to_string()
    }

    pub(crate) fn until(&self, what: &str, check: impl FnMut() -> bool) {
        until(what, check);
    }
}

/// A worker, killed when it is dropped.
pub(crate) struct Working(Child);

impl Working {
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.0.id().try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Whether every thread of it is stopped.
    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// The exit code, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        until("the worker to end", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // A frozen one hears nothing else.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process with the number in this file runs; a zombie does not.
pub(crate) fn runs(pid_file: &Path) -> bool {
    let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
