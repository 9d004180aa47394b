//! What commands answer with `--json`, where no other file asserts it: one object or one array on stdout, in full.

use serde_json::{Value, json};

use crate::common::{File, command, said};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_payload_longer_than_an_argument_may_be_comes_from_stdin() {
    let file = File::migrated();
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(200_000));
    let enqueue = |payload: &[u8]| {
        let path = file.folder.path().join("payload");
        std::fs::write(&path, payload).unwrap();
        let mut enqueue = command(&["enqueue", "import", "-", "--json", "--database", &file.url]);
        enqueue.stdin(std::fs::File::open(&path).unwrap());
        said(enqueue)
    };
    let put = enqueue(long.as_bytes());
    assert_eq!((put.code, put.err.as_str()), (Some(0), ""));
    assert_eq!(read(&put.out), json!({ "id": 1, "new": true, "state": null }));
    let stored = read(&file.ok(&["inspect", "1", "--json"]));
    assert_eq!(stored["job"]["payload"]["text"].as_str().map(str::len), Some(200_000));
    for (bad, code, problem) in [
        (&b"{\"a\":"[..], 1, "error: payload: not valid JSON"),
        (b"\"\xff\"", 2, "error: stdin: the payload is not UTF-8\n"),
    ] {
        let refused = enqueue(bad);
        assert_eq!((refused.code, refused.out.as_str()), (Some(code), ""));
        assert!(refused.err.starts_with(problem), "{}", refused.err);
    }
}

#[test]
fn enqueue_complete_and_migrate_answer_in_json() {
    let file = File::missing();
    let applied = read(&file.ok(&["migrate", "--json"]));
    assert_eq!(applied["applied"][0], "0001 base");
    assert_eq!(read(&file.ok(&["migrate", "--json"])), json!({ "applied": [] }));
    let enqueue = ["enqueue", "charge", "{}", "--key", "charge:1", "--json"];
    let new = read(&file.ok(&enqueue));
    assert_eq!(new, json!({ "id": 1, "new": true, "state": null }));
    let again = file.run(&enqueue);
    assert_eq!(read(&again.out), json!({ "id": 1, "new": false, "state": "ready" }));
    let complete = ["complete", "approval:42", "--json"];
    for completed in [true, false] {
        assert_eq!(
            read(&file.ok(&complete)),
            json!({ "name": "approval:42", "completed": completed, "jobs": 0 })
        );
    }
}

#[test]
fn each_job_of_a_command_is_an_object_of_its_json_array() {
    let file = File::migrated();
    for _ in 0..3 {
        file.ok(&["enqueue", "send", "{}"]);
    }
    let run = |args: &[&str], code: i32| -> Value {
        let said = file.run(&[args, &["--json"]].concat());
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        read(&said.out)
    };
    let until = "2100-01-01T00:00:00Z";
    assert_eq!(
        run(&["delay", "1", "7", "--until", until], 4),
        json!([
            { "id": 1, "ok": true, "due_at": until },
            { "id": 7, "ok": false, "error": "no job 7" },
        ])
    );
    assert_eq!(run(&["run-now", "1"], 0), json!([{ "id": 1, "ok": true }]));
    assert_eq!(run(&["retire", "1"], 0), json!([{ "id": 1, "ok": true }]));
    assert_eq!(
        run(&["reopen", "1"], 0),
        json!({ "id": 1, "state": "ready", "waits_for": null })
    );
    run(&["retire", "1", "2"], 0);
    assert_eq!(
        run(&["case", "note", "1", "asked", "--owner", "ann"], 0),
        json!({ "id": 1, "owner": "ann", "note": "asked" })
    );
    assert_eq!(
        run(&["case", "reopen", "1", "--payload", "[]"], 0),
        json!([{ "id": 1, "ok": true, "state": "ready", "waits_for": null }])
    );
    assert_eq!(run(&["case", "close", "2"], 0), json!([{ "id": 2, "ok": true }]));
    let gone = run(&["cancel", "--kind", "send", "--yes"], 0);
    assert_eq!(gone, json!([{ "id": 3, "ok": true }, { "id": 1, "ok": true }]));
    assert_eq!(run(&["cancel", "--kind", "send", "--yes"], 0), json!([]));
    let refused = file.run(&["rerun", "7", "--json"]);
    assert_eq!(refused.err, "error: no job 7\n", "errors stay on stderr");
}
