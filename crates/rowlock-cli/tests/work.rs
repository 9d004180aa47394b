//! Programs as handlers: the real binary, real processes, on both databases.

pub(crate) mod desk;
pub(crate) mod server;

use std::time::{Duration, Instant};

use desk::{on_each, runs};
use rustix::process::Signal;

use crate::common::{self, File, lines, rowlock};

#[test]
fn a_program_gets_its_payload_and_its_output_is_the_result() {
    on_each(|desk| {
        let id = desk.enqueue("sum", r#"{"a":1,  "b":[2.50]}"#, &["--attempts", "7"]);
        let sum = r#"read -r line; printf '{"got":%s,"attempt":"%s/%s","queue":"%s","kind":"%s@%s"}' "$line" "$ROWLOCK_ATTEMPT" "$ROWLOCK_ATTEMPTS_MAX" "$ROWLOCK_QUEUE" "$ROWLOCK_KIND" "$ROWLOCK_VERSION"
            printf '%s %s %s' "$ROWLOCK_JOB_ID" "$ROWLOCK_JOB_UID" "$ROWLOCK_EFFECT_KEY" > told"#;
        let said = desk.work(&["--exec", &desk.shell("sum", sum)]);
        let job = desk.inspect(id);
        assert_eq!(desk.outcomes(id), ["done"], "{}", said.err);
        let result = serde_json::json!({
            "got": {"a": 1, "b": [2.5]}, "attempt": "1/7", "queue": "default", "kind": "sum@1",
        });
        assert_eq!(job["job"]["result"], result);
        let uid = job["job"]["uid"].as_str().unwrap();
        assert_eq!(desk.read("told"), format!("{id} {uid} {uid}:call"));
        assert!(
            lines(&said.err)
                .iter()
                .any(|line| line.starts_with(&format!("job {id} sum: done"))),
            "{}",
            said.err
        );
    });
}

#[test]
fn text_is_stored_as_text_and_silence_as_nothing() {
    on_each(|desk| {
        let (text, nothing) = (desk.enqueue("text", "{}", &[]), desk.enqueue("nothing", "{}", &[]));
        let (say, quiet) = (
            desk.shell("text", "echo 'hello, \"world\"'"),
            desk.shell("nothing", "cat > /dev/null"),
        );
        desk.work(&["--exec", &say, "--exec", &quiet, "--quiet"]);
        assert_eq!(desk.inspect(text)["job"]["result"], "hello, \"world\"");
        assert_eq!(desk.outcomes(nothing), ["done"]);
        assert_eq!(desk.inspect(nothing)["job"]["result"], serde_json::Value::Null);
    });
}

#[test]
fn a_program_that_fails_is_tried_again_under_the_same_key() {
    on_each(|desk| {
        let id = desk.enqueue("flaky", "{}", &[]);
        let flaky = r#"echo "$ROWLOCK_ATTEMPT $ROWLOCK_EFFECT_KEY" >> tries; [ "$ROWLOCK_ATTEMPT" = 1 ] && { echo "not yet" >&2; exit 3; }; echo 1"#;
        desk.work(&["--exec", &desk.shell("flaky", flaky)]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
        assert!(
            desk.errors(id).contains("sh exited with 3: not yet"),
            "{}",
            desk.errors(id)
        );
        let tries = desk.read("tries");
        let keys: Vec<&str> = tries.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0], keys[1]);
    });
}

#[test]
fn exit_code_65_retires_and_75_says_that_nothing_was_done() {
    on_each(|desk| {
        let bad = desk.enqueue("bad", "{}", &[]);
        let later = desk.enqueue("later", "{}", &[]);
        let bad_program = desk.shell("bad", "echo 'no such customer' >&2; exit 65");
        let later_program = desk.shell("later", r#"[ "$ROWLOCK_ATTEMPT" = 1 ] && exit 75; exit 0"#);
        // Parked, a doubt would be a case: 75 leaves none.
        desk.work(&["--exec", &bad_program, "--exec", &later_program, "--on-unknown", "park"]);
        assert_eq!(desk.outcomes(bad), ["retired"]);
        assert_eq!(desk.inspect(bad)["effects"][0]["state"], "undone");
        let case = desk.inspect(bad)["case"].to_string();
        assert!(case.contains("sh exited with 65: no such customer"), "{case}");
        assert_eq!(desk.outcomes(later), ["retried", "done"]);
    });
}

#[test]
fn a_doubt_is_parked_where_that_was_asked_for() {
    on_each(|desk| {
        let id = desk.enqueue("pay", "{}", &[]);
        desk.work(&[
            "--exec",
            &desk.shell("pay", "echo once >> calls; exit 1"),
            "--on-unknown",
            "park",
        ]);
        let job = desk.inspect(id);
        assert_eq!(job["job"]["state"], "case");
        assert_eq!(job["effects"][0]["state"], "uncertain");
        let no = job["effects"][0]["no"].to_string();
        let said = desk.run(&["effect", "resolve", &no, "--happened", r#""receipt 7""#]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        desk.work(&[
            "--exec",
            &desk.shell("pay", "echo once >> calls; exit 1"),
            "--on-unknown",
            "park",
        ]);
        assert_eq!(desk.inspect(id)["job"]["result"], "receipt 7");
        assert_eq!(desk.read("calls"), "once\n");
    });
}

#[test]
fn output_over_the_limit_blocks_nobody_and_its_beginning_is_kept() {
    on_each(|desk| {
        let id = desk.enqueue("loud", "{}", &[]);
        let failing = desk.enqueue("failing", "{}", &["--attempts", "1"]);
        // Far more than a pipe holds, on both.
        let loud = "head -c 1000000 /dev/zero | tr '\\0' a; head -c 1000000 /dev/zero | tr '\\0' b >&2";
        let fail = format!("{loud}; echo the end >&2; exit 1");
        let (loud, failing_program) = (desk.shell("loud", loud), desk.shell("failing", &fail));
        desk.work(&["--exec", &loud, "--exec", &failing_program, "--output-max", "100"]);
        assert_eq!(desk.outcomes(id), ["done"]);
        let result = desk.inspect(id)["job"]["result"].as_str().unwrap().to_owned();
        assert_eq!(result, format!("{}… (cut)", "a".repeat(100)));
        let error = desk.inspect(failing)["attempts"][0]["error"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            error.starts_with("sh exited with 1: …bbb") && error.ends_with("the end") && error.len() < 200,
            "{error}"
        );
    });
}

#[test]
fn a_program_that_does_not_read_its_payload_is_no_error() {
    on_each(|desk| {
        // More than a pipe holds.
        let id = desk.enqueue("deaf", &format!("\"{}\"", "x".repeat(100_000)), &[]);
        desk.work(&["--exec", &desk.shell("deaf", "exec <&-; echo 1")]);
        assert_eq!(desk.outcomes(id), ["done"]);
    });
}

#[test]
fn the_time_limit_ends_the_whole_process_tree() {
    on_each(|desk| {
        let id = desk.enqueue("slow", "{}", &["--attempts", "1"]);
        // The program and its child hear SIGTERM and stay; a grandchild is in the background.
        let slow = r#"trap 'echo asked >> asked' TERM
            echo $$ > parent; sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 0.1; done' & 
            while :; do sleep 0.1; done"#;
        let said = desk.work(&["--exec", &desk.shell("slow", slow), "--timeout", "4s"]);
        assert_eq!(desk.outcomes(id), ["retired"], "{}", said.err);
        let error = desk.inspect(id)["attempts"][0]["error"].to_string();
        assert!(error.contains("was killed: it ran longer than 4s"), "{error}");
        assert_eq!(
            desk.read("asked").lines().next(),
            Some("asked"),
            "it is asked before it is made to"
        );
        for file in ["parent", "child"] {
            assert_ne!(desk.read(file), "", "{file} had started");
            assert!(!runs(&desk.file(file)), "{file} is left");
        }
        assert_eq!(desk.inspect(id)["effects"][0]["state"], "uncertain");
    });
}

#[test]
fn what_a_program_leaves_running_ends_with_it() {
    on_each(|desk| {
        let id = desk.enqueue("messy", "{}", &[]);
        let messy =
            "sh -c 'echo $$ > left; while :; do sleep 0.1; done' & while ! [ -s left ]; do sleep 0.01; done; echo 1";
        let start = Instant::now();
        desk.work(&["--exec", &desk.shell("messy", messy)]);
        assert_eq!(desk.outcomes(id), ["done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], 1);
        assert!(!runs(&desk.file("left")));
        assert!(start.elapsed() < Duration::from_secs(30), "nobody waits for its pipe");
    });
}

#[test]
fn a_cancelled_jobs_program_is_ended() {
    on_each(|desk| {
        let id = desk.enqueue("long", "{}", &[]);
        let long = "echo $$ > long; while :; do sleep 0.1; done";
        let worker = desk.start("log", &["--exec", &desk.shell("long", long)]);
        desk.until("the program to start", || runs(&desk.file("long")));
        assert_eq!(desk.run(&["cancel", &id.to_string()]).code, Some(0));
        desk.until("the program to end", || !runs(&desk.file("long")));
        assert_eq!(desk.outcomes(id), ["cancelled"]);
        drop(worker);
    });
}

#[test]
fn a_stop_lets_a_program_finish_within_the_grace_and_ends_it_after() {
    on_each(|desk| {
        let quick = desk.enqueue("quick", "{}", &[]);
        let script = "echo $$ > quick; while ! [ -e go ]; do sleep 0.05; done; echo 1";
        let mut worker = desk.start("log", &["--exec", &desk.shell("quick", script)]);
        desk.until("the program to start", || runs(&desk.file("quick")));
        worker.signal(Signal::TERM);
        std::fs::write(desk.file("go"), "").unwrap();
        assert_eq!(worker.ended(), Some(0));
        assert_eq!(desk.outcomes(quick), ["done"]);

        let stubborn = desk.enqueue("stubborn", "{}", &[]);
        let script = "trap '' TERM; echo $$ > stubborn; while :; do sleep 0.1; done";
        let mut worker = desk.start("log", &["--exec", &desk.shell("stubborn", script), "--grace", "100ms"]);
        desk.until("the program to start", || runs(&desk.file("stubborn")));
        worker.signal(Signal::INT);
        assert_eq!(worker.ended(), Some(0));
        assert!(!runs(&desk.file("stubborn")), "none outlives its worker");
        assert_eq!(desk.outcomes(stubborn), ["retried"]);
    });
}

#[test]
fn the_environment_is_the_workers_without_its_database() {
    on_each(|desk| {
        let id = desk.enqueue("env", "{}", &[]);
        let mut command = desk.command(&["work", "--until-empty", "--exec", &desk.shell("env", "env")]);
        command
            .env("MY_SETTING", "kept")
            .env("PGPASSWORD", "secret")
            .env("TRACEPARENT", "not the job's");
        assert_eq!(common::said(command).code, Some(0));
        let env = desk.inspect(id)["job"]["result"].as_str().unwrap().to_owned();
        let has = |name: &str| env.lines().any(|line| line.starts_with(&format!("{name}=")));
        assert!(has("MY_SETTING") && has("PATH") && has("ROWLOCK_EPOCH"), "{env}");
        for gone in ["ROWLOCK_DATABASE", "PGPASSWORD", "TRACEPARENT"] {
            assert!(!has(gone), "{gone} is told");
        }
    });
}

#[derive(serde::Serialize, serde::Deserialize, rowlock::Job)]
#[job(kind = "traced")]
struct Traced;

async fn enqueue_traced<DB: rowlock::Backend>(url: &str, trace: &str) -> i64 {
    let rowlock = rowlock::Rowlock::<DB>::open(url).unwrap();
    rowlock.enqueue_now(Traced).trace(trace).await.unwrap().id().into()
}

#[test]
fn a_program_is_told_whose_doing_its_job_is() {
    let parent = format!("00-{}-{}-01", "4b".repeat(16), "b7".repeat(8));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    on_each(|desk| {
        let trace = format!("{parent} vendor=1");
        let id = match desk.url.starts_with("postgres") {
            true => runtime.block_on(enqueue_traced::<sqlx::Postgres>(&desk.url, &trace)),
            false => runtime.block_on(enqueue_traced::<sqlx::Sqlite>(&desk.url, &trace)),
        };
        desk.work(&["--exec", &desk.shell("traced", r#"echo "$TRACEPARENT $TRACESTATE""#)]);
        assert_eq!(desk.inspect(id)["job"]["result"], trace);
    });
}

#[test]
fn older_versions_are_served_and_newer_ones_left_alone() {
    on_each(|desk| {
        let first = desk.enqueue("grow", "{}", &[]);
        let second = desk.enqueue("grow", "{}", &["--version", "2"]);
        let other = desk.enqueue("grow", "{}", &["--version", "3", "--queue", "other"]);
        let grow = desk.shell("grow@2", r#"echo "$ROWLOCK_VERSION""#);
        desk.work(&["--exec", &grow]);
        assert_eq!(desk.inspect(first)["job"]["result"], 1);
        assert_eq!(desk.inspect(second)["job"]["result"], 2);
        assert_eq!(desk.inspect(other)["job"]["state"], "ready");
    });
}

#[test]
fn a_program_file_is_run_by_its_path_with_its_arguments_as_they_are() {
    use std::os::unix::fs::PermissionsExt;
    on_each(|desk| {
        let path = desk.file("my program");
        std::fs::write(
            &path,
            "#!/bin/sh\nfor word in \"$@\"; do printf '<%s>' \"$word\"; done\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (plain, with) = (desk.enqueue("plain", "{}", &[]), desk.enqueue("with", "{}", &[]));
        let args = r#"with=["./my program","a b","$HOME; ls","*"]"#;
        desk.work(&["--exec", "plain=./my program", "--exec", args]);
        assert_eq!(desk.inspect(plain)["job"]["result"], serde_json::Value::Null);
        assert_eq!(desk.inspect(with)["job"]["result"], "<a b><$HOME; ls><*>");
    });
}

#[test]
fn bad_words_are_usage_and_say_what_to_write() {
    let file = File::migrated();
    let not_executable = file.folder.path().join("plain.txt");
    std::fs::write(&not_executable, "").unwrap();
    let not_executable = not_executable.display().to_string();
    for (args, said) in [
        (vec![], "nothing to run"),
        (vec!["--exec", "resize"], "use KIND=PROGRAM"),
        (
            vec!["--exec", "resize=./no-such-program"],
            "program ./no-such-program not found",
        ),
        (
            vec!["--exec", "resize=no-such-program"],
            "program no-such-program not found",
        ),
        (vec!["--exec", &format!("resize={not_executable}")], "is not executable"),
        (vec!["--exec", "resize=[\"sh\""], "not a JSON array of strings"),
        (vec!["--exec", "a=true", "--exec", "a=true"], "kind a is given twice"),
        (
            vec!["--exec", "a=true", "--http", "a=http://127.0.0.1:1/"],
            "kind a is given twice",
        ),
        (
            vec!["--http", "a=127.0.0.1:1"],
            "does not start with http:// or https://",
        ),
        (
            vec!["--http", "a=http://me:pw@127.0.0.1/"],
            "contains a user or password",
        ),
        (
            vec!["--exec", "a b=true"],
            "kind: \"a b\" is not a valid name; use 1 to 100 of",
        ),
        (vec!["--exec", "a=true", "--queue", "q=0"], "1 to 10000 slots"),
        (
            vec!["--exec", "a=true", "--queue", "q", "--queue", "q"],
            "queue \"q\" is added twice; remove one",
        ),
        (vec!["--exec", "a=true", "--lease", "1s"], "lease"),
        (vec!["--exec", "a=true", "--timeout", "0s"], "use 1ms to 1d"),
        (vec!["--exec", "a=true", "--output-max", "1m"], "use 1 to 131072 bytes"),
    ] {
        let all = [&["work", "--until-empty", "--database", &file.url][..], &args].concat();
        let got = rowlock(&all);
        assert_eq!((got.code, got.out.as_str()), (Some(2), ""), "{args:?}: {}", got.err);
        assert!(got.err.contains(said), "{args:?}: {}", got.err);
        assert!(!got.err.contains("pw"), "{}", got.err);
    }
}
