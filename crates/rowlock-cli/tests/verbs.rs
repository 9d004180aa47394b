//! `rowlock delay`, `run-now` and `cancel`, and jobs of groups, on a SQLite file, with what they print and how they
//! exit.

use rowlock::{Job, sqlite};
use serde::{Deserialize, Serialize};

use crate::common::File;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "send")]
struct Send {}

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
        beyond.err.starts_with("error: --by: the time is out of range"),
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
    assert!(file.ok(&["inspect", "2"]).contains("account:42, waiting for its turn"));
    let paused = file.run(&["pause", "--group", "account:42"]);
    assert_eq!(
        paused.err,
        "group account:42 paused; every worker follows within a second\n"
    );
    let listed = file.ok(&["jobs", "--group", "account:42", "--state", "waiting", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let status = file.ok(&["status"]);
    assert!(status.contains("\ngroup account:42 was paused by tess "), "{status}");
    let status: serde_json::Value = serde_json::from_str(&file.ok(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["pauses"][0]["what"], &status["breakers"]),
        (&"group".into(), &serde_json::json!([]))
    );
    file.run(&["resume", "--group", "account:42"]);
    let job: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "1", "--json"])).unwrap();
    assert_eq!(job["job"]["state"], "ready", "{job}");
}

#[test]
fn a_refusal_keeps_no_other_job_from_its_turn_and_the_worst_is_the_exit_code() {
    let file = File::migrated();
    for _ in 0..3 {
        file.ok(&["enqueue", "send", "{}"]);
    }
    file.ok(&["cancel", "2"]);
    let mixed = file.run(&["run-now", "7", "1", "2", "3"]);
    assert_eq!(mixed.out, "job 1 is due now\njob 3 is due now\n");
    assert_eq!(
        mixed.err,
        "error: no job 7\nerror: job 2 is finished, and cannot be run now\n2 made due now, 2 refused\n"
    );
    assert_eq!(mixed.code, Some(5), "a conflict is worse than what is not there");
    let missing = file.run(&["cancel", "1", "7"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(4), "job 1 is cancelled\n"));
    let good = file.run(&["delay", "3", "3", "--by", "1h"]);
    assert_eq!((good.code, good.err.as_str()), (Some(0), "2 delayed\n"));
}

#[test]
fn a_selection_is_counted_first_and_done_with_yes() {
    let file = File::migrated();
    for (kind, queue) in [("send", "mail"), ("send", "mail"), ("send", "bulk"), ("post", "mail")] {
        file.ok(&["enqueue", kind, "{}", "--queue", queue]);
    }
    file.ok(&["cancel", "2"]);
    let unsure = file.run(&["cancel", "--kind", "send"]);
    assert_eq!(
        (unsure.code, unsure.out.as_str(), unsure.err.as_str()),
        (Some(2), "would cancel 2 jobs; add --yes to do it\n", "")
    );
    let unsure = file.run(&["run-now", "--kind", "post", "--json"]);
    assert_eq!((unsure.code, unsure.err.as_str()), (Some(2), ""));
    let unsure: serde_json::Value = serde_json::from_str(&unsure.out).unwrap();
    assert_eq!(unsure, serde_json::json!({ "dry_run": true, "jobs": 1 }));
    let delayed = file.run(&["delay", "--queue", "mail", "--by", "1d", "--yes"]);
    assert_eq!((delayed.code, delayed.err.as_str()), (Some(0), "2 delayed\n"));
    assert_eq!(delayed.out.lines().count(), 2, "{}", delayed.out);
    let now = file.run(&["run-now", "--queue", "mail", "--kind", "post", "--yes"]);
    assert_eq!(
        (now.out.as_str(), now.err.as_str()),
        ("job 4 is due now\n", "1 made due now\n")
    );
    let gone = file.run(&["cancel", "--kind", "send", "--yes", "--reason", "a mistake"]);
    assert_eq!((gone.code, gone.err.as_str()), (Some(0), "2 cancelled\n"));
    assert_eq!(gone.out, "job 3 is cancelled\njob 1 is cancelled\n");
    for args in [
        &["cancel", "--kind", "send", "--yes"][..],
        &["cancel", "--kind", "send"],
    ] {
        assert_eq!(file.ok(args), "nothing to do: no matching jobs\n");
    }
    let none: serde_json::Value = serde_json::from_str(&file.ok(&["cancel", "--kind", "send", "--json"])).unwrap();
    assert_eq!(none, serde_json::json!({ "dry_run": true, "jobs": 0 }));
    assert!(file.ok(&["inspect", "3"]).contains("a mistake"));

    let nonsense = file.run(&["cancel", "--queue", "mail", "--state", "case"]);
    assert_eq!(
        (nonsense.code, nonsense.err.as_str()),
        (
            Some(2),
            "error: a case job cannot be cancelled\ntry:   --state ready or waiting or leased, or no --state\n"
        )
    );
    for both in [
        &["cancel", "1", "--queue", "mail"][..],
        &["cancel", "--state", "ready"],
        &["cancel"],
    ] {
        assert_eq!(file.run(both).code, Some(2), "{both:?}");
    }
}

#[test]
fn a_selection_of_more_than_a_page_is_done_to_the_last() {
    let file = File::migrated();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
        let jobs = (0..1500).map(|_| Send {});
        rowlock.enqueue_all_now(jobs).await.unwrap();
    });
    let gone = file.run(&["cancel", "--queue", "default", "--yes"]);
    assert_eq!((gone.code, gone.err.as_str()), (Some(0), "1500 cancelled\n"));
    assert_eq!(file.ok(&["jobs", "--state", "ready"]), "no matching jobs\n");
    assert_eq!(file.ok(&["jobs", "--state", "done"]), "no matching jobs\n");
    let listed = |args: &[&str]| file.run(&[&["jobs", "--state", "cancelled"], args].concat());
    let all = listed(&["--max", "10000"]);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (1501, ""));
    let some = listed(&["--max", "700"]);
    assert_eq!(some.err, "there may be more jobs: add --below 801\n");
    let rest = listed(&["--max", "10000", "--below", "801"]);
    assert_eq!((rest.out.lines().count(), rest.err.as_str()), (801, ""));
}

#[test]
fn a_prune_with_nothing_to_delete_says_so_and_succeeds() {
    let file = File::migrated();
    file.ok(&["enqueue", "send", "{}"]);
    file.ok(&["cancel", "1"]);
    assert_eq!(
        file.ok(&["prune", "--finished", "7d"]),
        "nothing to do: no finished jobs older than 7d\n"
    );
    assert_eq!(
        file.ok(&["prune", "--finished", "7d", "--cases", "90d"]),
        "nothing to do: no finished jobs older than 7d and no open cases older than 90d\n"
    );
    let none: serde_json::Value = serde_json::from_str(&file.ok(&["prune", "--finished", "7d", "--json"])).unwrap();
    assert_eq!(
        none,
        serde_json::json!({ "dry_run": true, "jobs": 0, "jobs_more": false, "cases": 0 })
    );
}
