//! `rowlock delay`, `run-now` and `cancel`, and jobs of groups, on a SQLite file, with what they print and how they exit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::File;

#[test]
fn a_job_is_delayed_run_now_and_cancelled_by_hand() {
    let file = File::migrated();
    assert_eq!(file.ok(&["enqueue", "send", "{}"]), "1\n");
    let until = "2100-01-01T00:00:00Z";
    assert_eq!(
        file.ok(&["delay", "1", "--until", until]),
        format!("job 1 is due at {until}\n")
    );
    let job: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "1", "--json"])).unwrap();
    assert_eq!(job["job"]["due_at"], until, "{job}");
    assert!(file.ok(&["delay", "1", "--by", "2h"]).starts_with("job 1 is due at 2"));
    assert_eq!(file.ok(&["run-now", "1", "--actor", "joe"]), "job 1 is due now\n");
    assert_eq!(file.ok(&["cancel", "1", "--reason", "twice"]), "job 1 is cancelled\n");
    assert!(file.ok(&["inspect", "1"]).contains("twice"));
}

#[test]
fn what_is_not_there_exits_with_4_and_what_is_in_the_way_with_5() {
    let file = File::migrated();
    for verb in [
        &["cancel", "7"][..],
        &["run-now", "7"],
        &["delay", "7", "--by", "1h"],
        &["reopen", "7"],
        &["inspect", "7"],
    ] {
        let said = file.run(verb);
        assert_eq!(said.code, Some(4), "{verb:?}: {}", said.err);
        assert!(said.err.starts_with("error: no job 7"), "{}", said.err);
    }
    file.ok(&["enqueue", "send", "{}"]);
    file.ok(&["cancel", "1"]);
    let said = file.run(&["cancel", "1"]);
    assert_eq!(said.err, "error: job 1 is finished, and cannot be cancelled\n");
    assert_eq!(said.code, Some(5));
    assert_eq!(file.run(&["reopen", "1"]).code, Some(5));
    let beyond = file.run(&["delay", "1", "--by", "9000000d"]);
    assert_eq!(beyond.code, Some(1), "{}", beyond.err);
    assert!(
        beyond.err.starts_with("error: --by reaches beyond all time"),
        "{}",
        beyond.err
    );
    let usage = file.run(&["delay", "1"]);
    assert_eq!(usage.code, Some(2), "{}", usage.err);
}

#[test]
fn a_group_is_listed_paused_and_resumed() {
    let file = File::migrated();
    for _ in 0..2 {
        file.ok(&["enqueue", "post", "{}", "--group", "account:42"]);
    }
    file.ok(&["enqueue", "post", "{}"]);
    let listed: serde_json::Value =
        serde_json::from_str(&file.ok(&["jobs", "--group", "account:42", "--json"])).unwrap();
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|j| (j["id"].clone(), j["state"].clone()))
        .collect();
    assert_eq!(listed, [(2.into(), "waiting".into()), (1.into(), "ready".into())]);
    assert!(file.ok(&["inspect", "2"]).contains("account:42, waits for its turn"));
    let paused = file.run(&["pause", "--group", "account:42"]);
    assert_eq!(
        paused.err,
        "group account:42 paused; every worker follows within a second\n"
    );
    let listed = file.ok(&["jobs", "--group", "account:42", "--state", "waiting", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let status = file.ok(&["status"]);
    assert!(status.contains("\ngroup account:42 is paused, by tess "), "{status}");
    let status: serde_json::Value = serde_json::from_str(&file.ok(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["pauses"][0]["what"], &status["breakers"]),
        (&"group".into(), &serde_json::json!([]))
    );
    file.run(&["resume", "--group", "account:42"]);
    let job: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "1", "--json"])).unwrap();
    assert_eq!(job["job"]["state"], "ready", "{job}");
}
