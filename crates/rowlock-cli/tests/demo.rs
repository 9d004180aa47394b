//! The demo, as a newcomer runs it: workers are killed, nothing is lost or doubled, nothing is left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{Database, assert_nothing_is_left, demo, postgres_urls, said};

fn assert_exactly_once(args: &[&str]) {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), args));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    let found: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&said.out).unwrap();
    let mut fields: Vec<&str> = found.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["done", "doubled", "effects", "jobs", "kills", "lost", "seconds"]
    );
    for (field, expected) in [
        ("jobs", 120),
        ("done", 120),
        ("effects", 80),
        ("lost", 0),
        ("doubled", 0),
    ] {
        assert_eq!(found[field], expected, "{field}: {}", said.out);
    }
    assert!(found["kills"].as_i64().unwrap() >= 5, "{}", said.out);
    assert!(found["seconds"].as_f64().unwrap() > 0.0, "{}", said.out);
    assert_nothing_is_left(temp.path());
}

#[test]
fn nothing_is_lost_or_doubled_on_sqlite_while_workers_are_killed() {
    assert_exactly_once(&["--json", "--orders", "40", "--kills", "5"]);
}

#[test]
fn nothing_is_lost_or_doubled_on_postgresql_while_workers_are_killed() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        assert_exactly_once(&["--json", "--orders", "40", "--kills", "5", "--database", &database.url]);
        assert_eq!(database.schemas(), ["public"]);
    }
}

#[test]
fn the_table_tells_a_newcomer_what_happened() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = demo(
        temp.path(),
        &["--orders", "20", "--kills", "3", "--workers", "2", "--seed", "7"],
    );
    // What the environment names is not for demos.
    run.env("ROWLOCK_DATABASE", "postgres://me:secret@127.0.0.1:1/production");
    let said = said(run);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert_eq!(
        said.err,
        "20 orders through 2 worker processes on SQLite, killing one 3 times …\n"
    );
    let shown = common::lines(&said.out);
    for line in [
        "20 orders, 60 jobs, 2 worker processes on SQLite seed 7",
        "orders placed 20 each in one commit with its first job",
        "stock reserved 20 96 at the start − 20 = 76 left",
        "charges at the provider 20 20 orders charged, 20 payments noted",
        "receipts at the provider 20 counted outside the database as well",
        "lost 0 orders without stock, charge or receipt",
        "doubled 0 orders with one of these twice",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line}\n{}", said.out);
    }
    assert!(
        shown.iter().any(|l| l.starts_with("workers killed 3 SIGKILL")),
        "{}",
        said.out
    );
    assert!(!said.out.contains('\x1b'), "colours are for terminals");
    assert_nothing_is_left(temp.path());
}

#[test]
fn what_is_kept_can_be_looked_at() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(
        temp.path(),
        &["--orders", "3", "--kills", "0", "--keep", "--json"],
    ));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let look = said
        .err
        .lines()
        .find_map(|line| line.strip_prefix("look:  rowlock "))
        .unwrap();
    let args: Vec<&str> = look.split(' ').collect();
    assert!(
        common::rowlock(&args)
            .out
            .starts_with("no job waits, runs or is a case\n")
    );
}

#[test]
fn a_demo_that_cannot_finish_says_what_is_stuck_and_fails() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), &["--orders", "30", "--kills", "0", "--limit", "0"]));
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(said.out.contains("not over after 0 s: "), "{}", said.out);
    assert!(
        said.err.contains("look:  rowlock status --database sqlite:"),
        "{}",
        said.err
    );
}

#[test]
fn a_wrong_database_fails_before_anything_is_made() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), &["--database", "sqlite:mine.db"]));
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(
        said.err.starts_with("error: demo makes a SQLite file of its own"),
        "{}",
        said.err
    );
    assert_nothing_is_left(temp.path());
}

#[cfg(target_os = "linux")]
mod ended_from_outside {
    use std::{
        path::Path,
        process::{Child, Command, ExitStatus, Stdio},
    };

    use super::*;
    use crate::common::{until, workers_under};

    fn start(temp: &Path, args: &[&str]) -> Child {
        let mut all = vec!["--orders", "5000", "--kills", "5000", "--json"];
        all.extend(args);
        let demo = demo(temp, &all)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("four workers and the provider at work", || workers_under(temp) >= 5);
        demo
    }

    fn signal(mut demo: Child, signal: &str) -> ExitStatus {
        let sent = Command::new("kill")
            .args([signal, &demo.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        demo.wait().unwrap()
    }

    #[test]
    fn ctrl_c_leaves_no_process_and_no_file() {
        for name in ["-INT", "-TERM"] {
            let temp = tempfile::tempdir().unwrap();
            assert_eq!(signal(start(temp.path(), &[]), name).code(), Some(130));
            assert_eq!(workers_under(temp.path()), 0);
            assert_nothing_is_left(temp.path());
        }
    }

    #[test]
    fn workers_do_not_outlive_a_killed_demo() {
        let temp = tempfile::tempdir().unwrap();
        signal(start(temp.path(), &[]), "-KILL");
        until("the workers to notice", || workers_under(temp.path()) == 0);
    }
}
