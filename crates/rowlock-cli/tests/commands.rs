//! Every operator command, on a SQLite file, with what it prints.

use std::time::Duration;

use rowlock::{Ended, Fail, Job, atomic, sqlite};
use serde::{Deserialize, Serialize};

use crate::common::{self, File, command, lines, said};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "orders", attempts = 2)]
struct Charge {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "receipt", queue = "orders")]
struct Receipt {
    order: i64,
}

/// Charges order 1 and continues with its receipt, gives up on every other order.
async fn charge(_cx: sqlite::Ctx, job: Charge, tx: sqlite::Tx) -> sqlite::Outcome {
    if job.order != 1 {
        return Err(Fail::retire("the card was declined"));
    }
    tx.done()
        .result(&serde_json::json!({ "paid": true }))
        .then(Receipt { order: job.order })
        .ok()
}

/// A file in which job 1 is done and has started job 3, and job 2 is a case.
async fn with_history() -> File {
    let file = File::migrated();
    let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
    for order in [1, 2] {
        let _ = rowlock.enqueue_now(Charge { order }).tag("vip").await.unwrap();
    }
    let worker = sqlite::Worker::new(&rowlock).queue("orders", 1).handle(atomic(charge));
    let counters = worker.counters();
    let both = async {
        let ended = || counters.settled(Ended::Done) + counters.settled(Ended::Retired);
        let wait = async {
            while ended() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    };
    worker.run_until(both).await.unwrap();
    file
}

#[test]
fn migrate_says_what_it_applied_and_then_that_nothing_is_missing() {
    let file = File::missing();
    let applied = file.ok(&["migrate"]);
    assert_eq!(applied, "applied 0001 base\napplied functions\n");
    assert_eq!(file.ok(&["migrate"]), "schema is up to date\n");
}

#[test]
fn migrate_sql_prints_the_migrations_and_touches_nothing() {
    let file = File::missing();
    let sql = file.ok(&["migrate", "--sql"]);
    assert!(
        sql.contains("create table rowlock_job") && sql.contains("begin immediate;"),
        "{sql}"
    );
    assert!(!file.path.exists());
    let sql = common::rowlock(&[
        "migrate",
        "--sql",
        "--database",
        "postgres://nobody@127.0.0.1:1/none",
        "--schema",
        "mine",
    ]);
    assert!(
        sql.out.starts_with("create schema if not exists mine;") && sql.code == Some(0),
        "{}",
        sql.out
    );
}

#[test]
fn enqueue_prints_the_id_and_keeps_every_option() {
    let file = File::migrated();
    assert_eq!(file.ok(&["enqueue", "charge", r#"{"order":1}"#]), "1\n");
    let options = [
        "--queue",
        "orders",
        "--priority",
        "2",
        "--attempts",
        "4",
        "--after",
        "5m",
        "--version",
        "3",
    ];
    let mut args = vec!["enqueue", "charge", "[1, 2]"];
    args.extend(options);
    assert_eq!(file.ok(&args), "2\n");

    let job: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "2", "--json"])).unwrap();
    let job = &job["job"];
    assert_eq!(
        (&job["queue"], &job["priority"], &job["version"]),
        (&"orders".into(), &2.into(), &3.into())
    );
    assert_eq!(
        (&job["attempts_max"], &job["payload"]),
        (&4.into(), &serde_json::json!([1, 2]))
    );
    assert!(lines(&file.ok(&["jobs"]))[1].starts_with("2 charge orders ready 0/4 due in 4 min 5"));
}

#[test]
fn a_repeat_under_a_key_prints_the_id_of_the_first_and_says_so() {
    let file = File::migrated();
    let enqueue =
        |payload: &str, hold: &str| file.run(&["enqueue", "charge", payload, "--key", "charge:1", "--hold", hold]);
    assert_eq!(enqueue(r#"{"order":1,"cents":5}"#, "30d").out, "1\n");
    let again = enqueue(r#"{"cents":5,"order":1}"#, "open");
    assert_eq!((again.code, again.out.as_str()), (Some(0), "1\n"));
    assert_eq!(again.err, "that job already holds the key; it is ready\n");
    let other = enqueue(r#"{"order":2}"#, "ever");
    assert_eq!((other.code, other.out.as_str()), (Some(5), ""));
    let conflict = "error: key \"charge:1\" is already used by a different request (stored: job 1 with ";
    assert!(other.err.starts_with(conflict), "{}", other.err);

    file.ok(&["enqueue", "charge", "{}"]);
    let shown = lines(&file.ok(&["jobs", "--key", "charge:1"]));
    assert!(shown.len() == 2 && shown[1].starts_with("1 charge "), "{shown:?}");
    assert_eq!(file.ok(&["jobs", "--key", "charge:2"]), "no matching jobs\n");
    let shown = lines(&file.ok(&["inspect", "1"]));
    assert!(shown.iter().any(|l| l == "key charge:1"), "{shown:?}");
    let job: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "1", "--json"])).unwrap();
    assert_eq!(job["job"]["key"], "charge:1");

    let bad = file.run(&["enqueue", "charge", "{}", "--key", "k", "--hold", "long"]);
    assert!(
        bad.code == Some(2) && bad.err.contains("use open, ever, or a time such as 30d"),
        "{}",
        bad.err
    );
    let lone = file.run(&["enqueue", "charge", "{}", "--hold", "ever"]);
    assert!(lone.code == Some(2) && lone.err.contains("--key"), "{}", lone.err);
}

#[test]
fn status_counts_per_queue_and_kind() {
    let file = File::migrated();
    assert_eq!(file.ok(&["status"]), "no open jobs\n\nno workers\n");
    file.ok(&["enqueue", "charge", "{}"]);
    file.ok(&["enqueue", "charge", "{}", "--after", "1h"]);
    file.ok(&["enqueue", "refund", "{}", "--queue", "money"]);

    let shown = lines(&file.ok(&["status"]));
    assert_eq!(shown[0], "queue kind due scheduled waiting leased cases oldest due");
    assert!(shown[1].starts_with("default charge 1 1 0 0 0 "), "{shown:?}");
    assert!(shown[2].starts_with("money refund 1 0 0 0 0 "), "{shown:?}");
    let status: serde_json::Value = serde_json::from_str(&file.ok(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["lanes"][0]["scheduled"], &status["workers"]),
        (&1.into(), &serde_json::json!([]))
    );
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_narrowed_by_every_filter() {
    let file = with_history().await;
    let ids = |args: &[&str]| -> Vec<i64> {
        let mut all = vec!["jobs", "--json"];
        all.extend(args);
        let jobs: Vec<serde_json::Value> = serde_json::from_str(&file.ok(&all)).unwrap();
        jobs.iter().map(|job| job["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [3, 2, 1]);
    assert_eq!(ids(&["--state", "finished"]), [1]);
    assert_eq!(ids(&["--state", "done"]), [1]);
    assert_eq!(ids(&["--state", "cancelled"]), [0i64; 0]);
    assert_eq!(ids(&["--state", "case"]), [2]);
    assert_eq!(ids(&["--kind", "receipt"]), [3]);
    assert_eq!(ids(&["--queue", "other"]), [0i64; 0]);
    assert_eq!(ids(&["--tag", "vip"]), [2, 1]);
    assert_eq!(ids(&["--below", "3", "--max", "1"]), [2]);

    let shown = lines(&file.ok(&["jobs"]));
    assert_eq!(shown[0], "id kind queue state attempt when last error");
    assert!(shown[1].starts_with("3 receipt orders ready 0/10 due "), "{shown:?}");
    assert!(shown[2].starts_with("2 charge orders case 1/2 ") && shown[2].ends_with("the card was declined"));
    assert!(shown[3].starts_with("1 charge orders done 1/2 "), "{shown:?}");
    assert_eq!(file.ok(&["jobs", "--kind", "none"]), "no matching jobs\n");
    assert_eq!(
        file.run(&["jobs", "--max", "2"]).err,
        "there may be more jobs: add --below 2\n"
    );
}

#[tokio::test]
async fn inspect_shows_payload_result_attempts_and_chain() {
    let file = with_history().await;
    let shown = lines(&file.ok(&["inspect", "1"]));
    for line in [
        "job 1 done",
        "kind charge (version 1)",
        "queue orders, priority 3",
        "tags vip",
        "\"paid\": true",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line}: {shown:?}");
    }
    assert!(shown.iter().any(|l| l.starts_with("1 done ")), "an attempt: {shown:?}");
    assert!(
        shown.iter().any(|l| l.starts_with("3 receipt orders ready")),
        "the next link: {shown:?}"
    );

    let all: serde_json::Value = serde_json::from_str(&file.ok(&["inspect", "1", "--json"])).unwrap();
    assert_eq!(all["job"]["payload"], serde_json::json!({ "order": 1 }));
    assert_eq!(all["attempts"][0]["outcome"], "done");
    assert_eq!(
        (&all["chain"][1]["kind"], &all["case"]),
        (&"receipt".into(), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn a_chain_is_shown_by_any_of_its_links() {
    let file = with_history().await;
    for id in ["1", "3"] {
        let shown = lines(&file.ok(&["chain", id]));
        assert_eq!(shown[0], "link id kind queue state attempt when last error");
        assert!(shown[1].starts_with("0 1 charge orders done 1/2 "), "{shown:?}");
        assert!(shown[2].starts_with("1 3 receipt orders ready 0/10 due "), "{shown:?}");
        assert_eq!(shown.len(), 3);
    }
    let alone: serde_json::Value = serde_json::from_str(&file.ok(&["chain", "2", "--json"])).unwrap();
    assert_eq!(
        (alone.as_array().map(Vec::len), &alone[0]["last_error"]),
        (Some(1), &"the card was declined".into())
    );
    let missing = file.run(&["chain", "7"]);
    assert_eq!(
        (missing.code, missing.err.as_str()),
        (
            Some(4),
            "error: no job 7; it never existed, or it was deleted after its retention\n\
             try:   rowlock jobs   lists the newest jobs\n"
        )
    );
}

#[tokio::test]
async fn a_case_is_listed_explained_and_reopened_once() {
    let file = with_history().await;
    let said = file.run(&["cases"]);
    let shown = lines(&said.out);
    assert_eq!((said.code, shown.len()), (Some(0), 2));
    assert_eq!(
        said.err,
        "rowlock inspect ID shows a case; rowlock case reopen ID runs its job again\n"
    );
    assert!(shown[1].starts_with("2 charge orders 1/2 ") && shown[1].ends_with("the card was declined"));
    let cases: serde_json::Value = serde_json::from_str(&file.ok(&["cases", "--json"])).unwrap();
    assert_eq!(cases[0]["history"][0]["outcome"], "retired");

    let shown = lines(&file.ok(&["inspect", "2"]));
    assert!(
        shown.iter().any(|l| l.ends_with("ago: the card was declined")),
        "{shown:?}"
    );
    assert!(shown.iter().any(|l| l == "rowlock reopen 2 runs it again"), "{shown:?}");

    assert_eq!(file.ok(&["reopen", "2"]), "reopened 2\n");
    assert_eq!(file.ok(&["cases"]), "no open cases\n");
    assert_eq!(
        file.refused(&["reopen", "2"]),
        "error: job 2 is ready, not a case; only cases can be reopened\n"
    );
}

#[tokio::test]
async fn a_waiting_job_is_shown_completed_once_and_waits_again_after_a_reopen() {
    let file = File::migrated();
    let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
    for order in [1, 2] {
        let wait = rowlock.enqueue_now(Charge { order }).waits_for("approval:42");
        let _ = wait.await.unwrap();
    }
    let late = rowlock
        .enqueue_now(Charge { order: 3 })
        .waits_for("late")
        .wait_limit(Duration::ZERO);
    let _ = late.await.unwrap();
    assert!(lines(&file.ok(&["status"]))[1].starts_with("orders charge 0 0 3 0 0"));
    let shown = lines(&file.ok(&["jobs", "--state", "waiting"]));
    assert!(shown[3].starts_with("1 charge orders waiting 0/2 "), "{shown:?}");
    let shown = lines(&file.ok(&["inspect", "1"]));
    assert!(shown.iter().any(|l| l == "waits for approval:42"), "{shown:?}");

    assert_eq!(
        file.refused(&["complete", "approval:42", "{"])
            .lines()
            .next()
            .unwrap()
            .split(':')
            .nth(1),
        Some(" answer")
    );
    let done = file.ok(&["complete", "approval:42", "{\"by\": \"Ada\"}"]);
    assert_eq!(done, "completed approval:42: 2 jobs moved to ready\n");
    let again = file.ok(&["complete", "approval:42"]);
    assert_eq!(again, "approval:42 was already completed; the first answer is kept\n");
    let shown = lines(&file.ok(&["inspect", "1"]));
    assert!(shown.iter().any(|l| l == "waited for approval:42"), "{shown:?}");

    let worker = sqlite::Worker::new(&rowlock).queue("none", 1).handle(atomic(charge));
    let counters = worker.counters();
    let over = async {
        while counters.waits_over() < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let over = async { tokio::time::timeout(Duration::from_secs(30), over).await.unwrap() };
    worker.run_until(over).await.unwrap();
    let reason = "its wait limit passed before this was completed: late";
    assert!(lines(&file.run(&["cases"]).out)[1].ends_with(reason));
    let said = file.ok(&["reopen", "3"]);
    assert_eq!(said, "reopened 3; it waits for late (rowlock complete late)\n");
}

#[test]
fn the_database_may_come_from_the_environment_and_before_the_command() {
    let file = File::migrated();
    let mut from_env = command(&["jobs"]);
    from_env.env("ROWLOCK_DATABASE", &file.url);
    assert_eq!(said(from_env).out, "no matching jobs\n");
    assert_eq!(
        common::rowlock(&["--database", &file.url, "jobs"]).out,
        "no matching jobs\n"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let file = File::migrated();
    let mut jobs = command(&["migrate", "--sql", "--database", &file.url]);
    let mut child = jobs
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn rollout_sets_shows_and_lists_with_who_set_it() {
    let file = File::migrated();
    assert_eq!(file.ok(&["rollout"]), "no rollouts\n");
    assert_eq!(
        file.ok(&["rollout", "incident-guard"]),
        "incident-guard is not set: 0 %\n"
    );
    let set = file.run(&["rollout", "incident-guard", "25"]);
    assert_eq!(set.err, "every worker follows within a second, without a restart\n");
    let set = set.out;
    assert!(
        set.contains("incident-guard") && set.contains("25") && set.contains("tess"),
        "{set}"
    );
    assert_eq!(file.run(&["rollout", "other", "100", "--actor", "joe"]).code, Some(0));
    let all: serde_json::Value = serde_json::from_str(&file.ok(&["rollout", "--json"])).unwrap();
    let listed = all.as_array().unwrap().iter();
    let listed: Vec<_> = listed
        .map(|r| (r["name"].as_str(), r["percent"].as_u64(), r["changed_by"].as_str()))
        .collect();
    assert_eq!(
        listed,
        [
            (Some("incident-guard"), Some(25), Some("tess")),
            (Some("other"), Some(100), Some("joe"))
        ]
    );
    let one: serde_json::Value = serde_json::from_str(&file.ok(&["rollout", "other", "0", "--json"])).unwrap();
    assert_eq!(
        (one[0]["percent"].as_u64(), one.as_array().map(Vec::len)),
        (Some(0), Some(1))
    );
    for bad in [&["rollout", "other", "101"][..], &["rollout", "no spaces", "5"]] {
        let refused = file.run(bad);
        assert_ne!(refused.code, Some(0), "{bad:?}: {}", refused.out);
    }
}

#[test]
fn pause_and_resume_say_what_changed_and_list_what_is_paused() {
    let file = File::migrated();
    assert_eq!(file.ok(&["pause"]), "nothing is paused\n");
    file.ok(&["enqueue", "ship", "{}", "--queue", "orders"]);
    let paused = file.run(&["pause", "--queue", "orders"]);
    assert_eq!(
        paused.err,
        "queue orders paused; every worker follows within a second\n"
    );
    let lines: Vec<&str> = paused.out.lines().collect();
    assert!(
        lines[0].contains("paused") && lines[0].contains("since") && lines[0].contains("by"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("queue orders") && lines[1].contains("tess"),
        "{lines:?}"
    );
    let again = file.run(&["pause", "--queue", "orders", "--actor", "joe"]);
    assert_eq!(
        (again.err.as_str(), again.code),
        ("queue orders was already paused\n", Some(0))
    );
    let unknown = file.run(&["pause", "--kind", "charge", "--actor", "joe"]);
    assert_eq!(
        (unknown.code, unknown.err.as_str()),
        (
            Some(0),
            "kind charge paused; every worker follows within a second\n\
             no open job is of this kind now; check the name if you expected some\n"
        )
    );
    let all: serde_json::Value = serde_json::from_str(&file.ok(&["pause", "--json"])).unwrap();
    let listed: Vec<_> = all.as_array().unwrap().iter().collect();
    let listed: Vec<_> = listed
        .iter()
        .map(|p| (p["what"].as_str(), p["name"].as_str(), p["by"].as_str()))
        .collect();
    assert_eq!(
        listed,
        [
            (Some("kind"), Some("charge"), Some("joe")),
            (Some("queue"), Some("orders"), Some("tess"))
        ]
    );
    let resumed = file.run(&["resume", "--kind", "charge"]);
    assert_eq!(
        resumed.err,
        "kind charge resumed; every worker follows within a second\n"
    );
    assert_eq!(
        file.run(&["resume", "--kind", "charge"]).err,
        "kind charge was not paused\n"
    );
    assert_eq!(file.run(&["resume", "--queue", "orders"]).code, Some(0));
    let unknown = file.run(&["pause", "--queue", "nope"]);
    assert_eq!(unknown.code, Some(0));
    let note = "\nno open job is in this queue now; check the name if you expected some\n";
    assert!(unknown.err.ends_with(note), "{}", unknown.err);
    assert_eq!(file.run(&["resume", "--queue", "nope"]).code, Some(0));
    assert_eq!(file.ok(&["resume"]), "nothing is paused\n");
    for bad in [
        &["pause", "--queue", "no spaces"][..],
        &["pause", "--queue", "a", "--kind", "b"],
    ] {
        let refused = file.run(bad);
        assert_ne!(refused.code, Some(0), "{bad:?}: {}", refused.out);
    }
}
