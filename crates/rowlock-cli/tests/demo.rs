//! The demo, as a newcomer runs it: workers are killed, nothing is lost or doubled, nothing is left behind.

#[path = "demo/pictures.rs"]
mod pictures_of_runs;

use serde_json::Value;

use crate::common::{self, Database, assert_nothing_is_left, demo, postgres_urls, said};

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
        "Running 20 orders through 2 worker processes on SQLite, with 3 kills (SIGKILL)\n\
         creating the database\n\
         starting the payment provider\n\
         starting 2 workers\n\
         placing orders and killing workers\n\
         counting orders, charges and receipts\n"
    );
    let shown = common::lines(&said.out);
    for line in [
        "20 orders, 60 jobs, 2 worker processes on SQLite seed 7",
        "orders placed 20 each committed together with its first job",
        "stock reserved 20 96 at the start − 20 = 76 left",
        "charges at the provider 20 20 orders charged, 20 payments stored",
        "receipts at the provider 20 counted in the provider's own log",
        "lost 0 orders missing stock, charge or receipt",
        "doubled 0 orders with any of these more than once",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line}\n{}", said.out);
    }
    assert!(
        shown.iter().any(|l| l.starts_with("workers killed 3 SIGKILL")),
        "{}",
        said.out
    );
    assert!(!said.out.contains('\x1b'), "colours are for terminals");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_nothing_is_left(temp.path());
}

#[test]
fn the_last_lines_name_the_next_two_commands_as_the_reader_can_type_them() {
    let run = if cfg!(debug_assertions) {
        "cargo run -- demo charges"
    } else {
        "cargo run --release -- demo charges"
    };
    let installed = ["rowlock demo charges", "rowlock demo --database postgres://…"];
    for (package, commands) in [(Some("rowlock-cli"), [run, "cargo xtask test"]), (None, installed)] {
        let temp = tempfile::tempdir().unwrap();
        let mut run = demo(temp.path(), &["--orders", "2", "--kills", "0"]);
        run.envs(package.map(|package| ("CARGO_PKG_NAME", package)));
        let said = said(run);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        let (_, next) = said.out.split_once("\n  next: ").unwrap();
        let explained = |command: &str| {
            let (_, after) = next.split_once(command).unwrap();
            assert!(after.starts_with("  ") || after.starts_with("\n  "), "{}", said.out);
            common::lines(after.trim_start())[0].clone()
        };
        assert!(next.starts_with(commands[0]), "{}", said.out);
        assert_eq!(explained(commands[0]), "replies get lost as well");
        let tests = "the quick tests; add --long for the rest";
        let second = if package.is_some() {
            tests
        } else {
            "the same on PostgreSQL"
        };
        assert_eq!(explained(commands[1]), second);
    }
}

/// Runs a small demo with a record, and checks the record against the result.
fn assert_record_agrees(more: &[&str], database: &str) {
    let (temp, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("run.json");
    let args = [
        "--json",
        "--orders",
        "20",
        "--kills",
        "3",
        "--workers",
        "2",
        "--record",
        file.to_str().unwrap(),
    ];
    let said = said(demo(temp.path(), &[&args, more].concat()));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(record["result"], serde_json::from_str::<Value>(&said.out).unwrap());
    assert_eq!(
        (&record["scene"], &record["database"]),
        (&"orders".into(), &database.into())
    );
    assert_eq!((&record["orders"], &record["workers"]), (&20.into(), &2.into()));
    let list = |name: &str| record[name].as_array().unwrap().clone();
    let (samples, events) = (list("samples"), list("events"));
    for (list, counts) in [(&samples, &["t_ms", "done"][..]), (&events, &["t_ms"])] {
        for count in counts {
            let values: Vec<i64> = list.iter().map(|one| one[count].as_i64().unwrap()).collect();
            assert!(values.is_sorted(), "{count} goes back: {values:?}");
        }
    }
    assert_eq!(samples.last().unwrap()["done"], record["result"]["done"]);
    let clean = |sample: &Value| sample["doubled_rows"] == 0 && sample["missing_rows"] == 0;
    assert!(samples.iter().all(clean), "{samples:?}");
    let happened = |what: &str| events.iter().filter(|event| event["event"] == what).count() as i64;
    let kills = record["result"]["kills"].as_i64().unwrap();
    assert_eq!((happened("killed"), happened("stopped")), (kills, 2));
    assert_eq!(happened("started"), 2 + kills + happened("ended"));
    assert_nothing_is_left(temp.path());
}

#[test]
fn a_record_agrees_with_the_result_on_sqlite() {
    assert_record_agrees(&[], "SQLite");
}

#[test]
fn a_record_agrees_with_the_result_on_postgresql() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        assert_record_agrees(&["--database", &database.url], "PostgreSQL");
    }
}

#[test]
fn a_record_that_cannot_be_written_is_refused_before_the_run() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), &["--record", "no/such/folder/run.json"]));
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(
        said.err
            .starts_with("error: --record no/such/folder/run.json: not a file in an existing folder\n"),
        "{}",
        said.err
    );
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
    assert!(common::rowlock(&args).out.starts_with("no open jobs\n"));
}

#[test]
fn a_demo_that_cannot_finish_says_what_is_open_and_calls_nothing_lost() {
    let temp = tempfile::tempdir().unwrap();
    let args = ["--orders", "30", "--kills", "0", "--limit", "0"];
    let table = said(demo(temp.path(), &args));
    assert_eq!(table.code, Some(124), "{}", table.out);
    let (_, end) = table.out.split_once("\n  The demo did not finish in 0 s: ").unwrap();
    let end: Vec<&str> = end.lines().collect();
    assert!(end[0].ends_with(" jobs are still open."), "{end:?}");
    assert!(end[1].contains(" reserve-stock due"), "{end:?}");
    assert!(
        end[2].starts_with("  Nothing can be said about lost or doubled yet."),
        "{end:?}"
    );
    assert!(
        !table.out.contains("must not happen") && !table.out.contains("  lost "),
        "{}",
        table.out
    );
    assert!(
        table.err.contains("look:  rowlock status --database sqlite:"),
        "{}",
        table.err
    );

    let json = said(demo(temp.path(), &[&args[..], &["--json"]].concat()));
    assert_eq!(json.code, Some(124), "{}", json.out);
    let found: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&found["lost"], &found["doubled"]), (&Value::Null, &Value::Null));
    assert_eq!(found["jobs"].as_i64().map(|jobs| jobs >= 30), Some(true), "{found}");
    assert!(
        json.err.starts_with("  The demo did not finish in 0 s: "),
        "{}",
        json.err
    );
}

#[test]
fn a_wrong_database_fails_before_anything_is_made() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), &["--database", "sqlite:mine.db"]));
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(
        said.err
            .starts_with("error: demo creates and deletes its own SQLite file"),
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
