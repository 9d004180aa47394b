//! How a worker process ends, and what it does when the machine is exhausted, on both databases.

use std::{os::unix::process::CommandExt, process::Command};

use rustix::process::Signal;

use crate::{
    common,
    work::desk::{Desk, on_each, runs},
};

/// Runs until it is ended.
const ENDLESS: &str = "echo $$ > pid; while :; do sleep 0.1; done";

#[test]
fn a_closed_terminal_stops_a_worker_and_its_programs() {
    on_each(|desk| {
        let id = desk.enqueue("endless", "{}", &[]);
        let mut worker = desk.start("log", &["--exec", &desk.shell("endless", ENDLESS), "--grace", "100ms"]);
        desk.until("the program to start", || runs(&desk.file("pid")));
        worker.signal(Signal::HUP);
        assert_eq!(worker.ended(), Some(0), "{}", desk.read("log"));
        assert!(!runs(&desk.file("pid")), "none outlives its worker");
        assert_eq!(desk.outcomes(id), ["retried"]);
    });
}

#[test]
fn the_first_signal_says_that_a_second_ends_running_calls_and_the_second_does() {
    on_each(|desk| {
        let id = desk.enqueue("endless", "{}", &[]);
        let program = desk.shell("endless", ENDLESS);
        let mut worker = desk.start("log", &["--exec", &program, "--grace", "10m"]);
        desk.until("the program to start", || runs(&desk.file("pid")));
        worker.signal(Signal::TERM);
        let said = "stopping; running calls have 10 min 0 s; a second signal ends them now";
        desk.until("the first to be answered", || desk.read("log").contains(said));
        assert!(runs(&desk.file("pid")), "the grace has only begun");
        worker.signal(Signal::INT);
        assert_eq!(worker.ended(), Some(0), "{}", desk.read("log"));
        assert!(!runs(&desk.file("pid")), "none outlives its worker");
        assert_eq!(desk.outcomes(id), ["retried"]);
        assert!(
            desk.errors(id).contains("a second signal ended the call"),
            "{}",
            desk.errors(id)
        );
    });
}

/// A program that leaves an orphan behind, outside its process group, which ends a moment later.
const ORPHAN: &str = "setsid sh -c 'echo $$ > \"orphan-$ROWLOCK_JOB_ID\"; sleep 0.2' > /dev/null 2>&1 < /dev/null &
    while ! [ -s \"orphan-$ROWLOCK_JOB_ID\" ]; do sleep 0.01; done; echo 1";

/// Whether a new process 1 can be made here: the kernel or a container may forbid it.
fn can_be_first() -> bool {
    let tried = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn as_the_first_process_a_worker_leaves_no_zombies() {
    if !can_be_first() {
        eprintln!("skipped: this user cannot make a process namespace");
        return;
    }
    on_each(|desk| {
        let jobs: Vec<i64> = (0..5).map(|_| desk.enqueue("orphan", "{}", &[])).collect();
        let worker = desk.command(&["work", "--exec", &desk.shell("orphan", ORPHAN)]);
        let mut first = desk.command(&[]);
        first = inside(first, &worker);
        let log = std::fs::File::create(desk.file("log")).unwrap();
        let mut running = first.stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap();
        desk.until("the jobs to be done", || {
            jobs.iter().all(|id| desk.outcomes(*id) == ["done"])
        });
        desk.until("no orphan to be left, not even as a zombie", || {
            zombies_below(running.id()) == 0
        });
        let pid = worker_below(running.id());
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let status = running.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", desk.read("log"));
    });
}

/// The same command as process 1 of a namespace.
fn inside(outer: Command, worker: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(worker.get_program()).args(worker.get_args());
    for (name, value) in worker.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(outer.get_current_dir().unwrap());
    command
}

/// Process 1 of the namespace: the only child of `unshare`.
fn worker_below(unshare: u32) -> rustix::process::Pid {
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    let pid = children.split_whitespace().next().unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

/// How many zombies are children of process 1 of the namespace.
fn zombies_below(unshare: u32) -> usize {
    let first = worker_below(unshare).as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
    let is_zombie = |pid: &&str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    children.split_whitespace().filter(is_zombie).count()
}

#[test]
fn a_worker_that_is_out_of_files_gives_attempts_back() {
    on_each(|desk| {
        let jobs: Vec<i64> = (0..40)
            .map(|_| desk.enqueue("held", "{}", &["--attempts", "1"]))
            .collect();
        // All of them want to run together, and there are files for about half.
        let held = "echo x >> begun; while ! [ -e go ]; do sleep 0.05; done; echo 1";
        let held = desk.shell("held", held);
        let rowlock = desk.command(&["work", "--exec", &held, "--queue", "default=40"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 100; exec \"$@\"", "sh"]);
        limited.arg(rowlock.get_program()).args(rowlock.get_args());
        for (name, value) in rowlock.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        limited.current_dir(rowlock.get_current_dir().unwrap()).process_group(0);
        let log = std::fs::File::create(desk.file("log")).unwrap();
        let mut worker = limited.stderr(log).stdout(std::process::Stdio::null()).spawn().unwrap();
        desk.until("an attempt to be given back", || desk.read("log").contains("deferred"));
        std::fs::write(desk.file("go"), "").unwrap();
        desk.until("every job to be done", || {
            jobs.iter()
                .all(|id| desk.outcomes(*id).last().is_some_and(|end| end == "done"))
        });
        let pid = rustix::process::Pid::from_raw(worker.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(worker.wait().unwrap().code(), Some(0));
        let log = desk.read("log");
        assert!(log.contains("could not be started: Too many open files"), "{log}");
        assert!(!log.contains("retired"), "{log}");
        assert_eq!(desk.run(&["verify"]).code, Some(0));
    });
}

#[test]
fn an_id_that_cannot_be_printed_is_reported_with_the_job() {
    on_each(|desk: &Desk| {
        let mut command = desk.command(&["enqueue", "mail", "{}"]);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0));
        assert!(
            said.contains("job 1 is enqueued, but its id could not be written to stdout"),
            "{said}"
        );
        assert!(said.contains("do not enqueue it again; rowlock inspect 1"), "{said}");
        assert_eq!(desk.inspect(1)["job"]["state"], "ready");
        let listed = common::said(desk.command(&["jobs", "--json"])).out;
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&listed)
                .unwrap()
                .as_array()
                .unwrap()
                .len(),
            1
        );
    });
}
