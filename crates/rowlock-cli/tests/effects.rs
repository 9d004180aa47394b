//! Effects in doubt, from the list to the resolution, on a SQLite file.

use std::time::Duration;

use rowlock::{Ended, Job, sqlite, staged};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::{File, lines};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "orders")]
struct Charge {
    effects: usize,
}

/// Loses the answer of every call. There is one effect, or several; each is awaited whatever the others did.
async fn charge(cx: sqlite::Staged, job: Charge) -> sqlite::Outcome {
    let mut ended = Ok(0);
    for n in 0..job.effects {
        let called = cx
            .effect(&format!("charge-{n}"), |_| async { Err::<i64, _>("no answer") })
            .park();
        ended = called.await;
    }
    let paid = ended?;
    cx.done().result(&paid).ok()
}

async fn work(file: &File, settled: u64) {
    let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
    let worker = sqlite::Worker::new(&rowlock).queue("orders", 1).handle(staged(charge));
    let counters = worker.counters();
    let ended = async {
        let wait = async {
            while counters.settled(Ended::Done) + counters.settled(Ended::Retired) < settled {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    };
    worker.run_until(ended).await.unwrap();
}

/// A file whose jobs with so many parked effects each are cases.
async fn parked(effects: &[usize]) -> File {
    let file = File::migrated();
    let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
    for effects in effects {
        let job = Charge { effects: *effects };
        let _ = rowlock.enqueue_now(job).await.unwrap();
    }
    work(&file, effects.len() as u64).await;
    file
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_effect_is_listed_resolved_as_happened_and_its_job_goes_on() {
    let file = parked(&[1]).await;
    let said = file.run(&["effects"]);
    assert_eq!(
        said.err,
        "find out whether the call happened, then run: rowlock effect resolve NO --happened JSON | --not-happened\n"
    );
    let shown = lines(&said.out);
    assert_eq!(shown[0], "no job name state policy tries begun key answer");
    assert!(shown[1].starts_with("1 1 charge-0 uncertain park 1"), "{shown:?}");
    assert!(shown[1].ends_with(":charge-0 no answer"), "{shown:?}");
    let inspected = file.ok(&["inspect", "1"]);
    assert!(
        inspected.contains("rowlock effect resolve 1 --happened JSON"),
        "{inspected}"
    );
    assert!(lines(&inspected).iter().any(|line| line == "effects"), "{inspected}");
    assert_eq!(
        json(&file.ok(&["inspect", "1", "--json"]))["effects"][0]["state"],
        "uncertain"
    );

    assert_eq!(
        file.ok(&["effect", "resolve", "1", "--happened", "12"]),
        "effect 1 of job 1 happened\nreopened 1\n"
    );
    assert_eq!(file.ok(&["effects"]), "no uncertain effects\n");
    let effect = &json(&file.ok(&["effects", "--all", "--json"]))[0];
    assert_eq!(
        (&effect["state"], &effect["reply"], &effect["resolved_by"]),
        (&"replied".into(), &12.into(), &"tess".into())
    );
    work(&file, 1).await;
    let job = &json(&file.ok(&["inspect", "1", "--json"]))["job"];
    assert_eq!((&job["last_outcome"], &job["result"]), (&"done".into(), &12.into()));
    let settled = file.run(&["effect", "resolve", "1", "--not-happened"]);
    assert_eq!(
        (settled.code, settled.err.as_str()),
        (
            Some(5),
            "error: effect 1 \"charge-0\" of job 1 is replied, not in doubt\n"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_did_not_happen_is_called_again_and_the_case_may_be_left_alone() {
    let file = parked(&[1]).await;
    assert_eq!(
        file.ok(&["effect", "resolve", "1", "--not-happened", "--no-reopen"]),
        "effect 1 of job 1 did not happen\n"
    );
    assert!(file.run(&["cases"]).out.contains("charge"));
    assert_eq!(file.ok(&["reopen", "1"]), "reopened 1\n");
    work(&file, 1).await;
    let effect = &json(&file.ok(&["effects", "--json"]))[0];
    assert_eq!((&effect["tries"], &effect["state"]), (&2.into(), &"uncertain".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_second_doubt_stays_a_case_until_that_is_resolved_too() {
    let file = parked(&[1, 2]).await;
    let of_job = json(&file.ok(&["effects", "--job", "2", "--json"]));
    let numbers: Vec<i64> = of_job
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["no"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(
        file.ok(&["effect", "resolve", "2", "--happened", "1"]),
        "effect 2 of job 2 happened\nnot reopened: effect 3 \"charge-1\" of job 2 is uncertain too\n"
    );
    assert_eq!(
        file.ok(&["effect", "resolve", "3", "--happened", "1"]),
        "effect 3 of job 2 happened\nreopened 2\n"
    );
}

#[test]
fn a_resolution_must_name_a_doubt_and_say_what_happened() {
    let file = File::migrated();
    let missing = file.run(&["effect", "resolve", "7", "--not-happened"]);
    assert_eq!(
        (missing.code, missing.err.as_str()),
        (
            Some(4),
            "error: no effect 7; `rowlock effects` lists the effects in doubt\n"
        )
    );
    assert_eq!(file.ok(&["effects", "--all"]), "no effects\n");
    let neither = file.run(&["effect", "resolve", "7"]);
    assert_eq!(neither.code, Some(2));
    let no_json = file.run(&["effect", "resolve", "7", "--happened", "{"]);
    assert!(
        no_json.code == Some(2) && no_json.err.contains("not json"),
        "{}",
        no_json.err
    );
    let both = file.run(&["effect", "resolve", "7", "--happened", "1", "--not-happened"]);
    assert_eq!(both.code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolution_answers_in_json_whether_the_case_was_reopened() {
    let file = parked(&[1, 2]).await;
    let resolve = |args: &[&str]| json(&file.ok(&[&["effect", "resolve"], args, &["--json"]].concat()));
    assert_eq!(
        resolve(&["1", "--happened", "12"]),
        serde_json::json!({ "no": 1, "job": 1, "happened": true, "reopened": true, "not_reopened": null })
    );
    assert_eq!(
        resolve(&["2", "--not-happened"]),
        serde_json::json!({
            "no": 2, "job": 2, "happened": false, "reopened": false,
            "not_reopened": "effect 3 \"charge-1\" of job 2 is uncertain too",
        })
    );
    let kept = resolve(&["3", "--happened", "1", "--no-reopen"]);
    assert_eq!(kept["not_reopened"], "--no-reopen was given");
}
