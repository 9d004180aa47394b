//! Every example runs, ends by itself, and prints exactly this; and the README shows the code of one of them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the examples' binaries: where the run says that they are built already, or once they are built.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(built) = std::env::var_os("ROWLOCK_TEST_EXAMPLES") {
        return built.into();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--locked", "--examples"])
        .args(["--package", "rowlock", "--package", "rowlock-axum"])
        .args(["--package", "rowlock-cli", "--package", "proof"])
        .current_dir(root());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(
        build.status().expect("cargo starts").success(),
        "the examples do not build"
    );
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors()
        .nth(2)
        .expect("deps lies in the target folder")
        .join("examples")
});

/// What an example writes to stdout.
fn output(name: &str) -> String {
    // Some leave a file in the current folder.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = Command::new(BUILT.join(name))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the example starts");
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name} failed: {err}");
    String::from_utf8(run.stdout).expect("examples print text")
}

fn expect(name: &str, lines: &[&str]) {
    let printed = output(name);
    assert_eq!(printed.lines().collect::<Vec<_>>(), lines, "example {name}");
}

#[test]
fn hello_runs_its_job_once() {
    expect("hello", &["hello, world: job 1 is done"]);
}

#[test]
fn a_failed_request_leaves_neither_order_nor_job() {
    expect(
        "enqueue_in_axum",
        &[
            "oars: 201: order 1",
            "boat: 402: not enough money",
            "1 order, 1 job",
            "order 1 is confirmed",
        ],
    );
}

#[test]
fn a_job_waits_for_its_approval_or_its_time_limit() {
    expect(
        "approval",
        &[
            "job 1 is waiting",
            "Now(1)",
            "Already: the first answer stays",
            "job 1 is done: \"paid, approved by Ada\"",
            "job 2 is a case: its wait limit passed before this was completed: approval:2",
            "request 1 is paid",
            "request 2 is declined",
        ],
    );
}

#[test]
fn a_repeated_request_gets_the_first_ones_job_and_then_its_result() {
    expect(
        "enqueue_key",
        &[
            "order 7, seat 12A: new: job 1",
            "order 7, seat 12A: job 1 is ready",
            "order 7, seat 12B: refused: reserve:7 stands for another request",
            "order 7, seat 12A: job 1 is done: {\"ticket\":\"T-12A\"}",
            "seats reserved: 1",
            "batch of 3: 2 new",
            "retention: keys are kept for 30 d, but a job of kind reserve-seat can take 1 h 50 min 39 s (10 attempts) \
             and its case is kept for 90 d; keep keys for at least 90 d 1 h 50 min 39 s, or for ever",
        ],
    );
}

#[test]
fn a_body_lock_lets_in_as_many_as_it_has_slots() {
    expect(
        "body_lock",
        &["12 jobs done", "ada: at most 1 at once", "acme: at most 2 at once"],
    );
}

#[test]
fn a_breaker_saves_calls_to_what_is_down() {
    expect(
        "breaker",
        &[
            "till is open",
            "till is closed",
            "6 orders charged; 2 calls were made in vain",
        ],
    );
}

#[test]
fn a_group_keeps_its_order_and_holds_nobody_else() {
    expect("group", &["bob 1, bob 2, bob 3, ada 1, ada 2, ada 3"]);
}

#[test]
fn hooks_tell_of_what_was_committed_and_of_nothing_else() {
    expect(
        "after_commit",
        &["Done(None)", "forget item 7, by attempt 2", "hooks that failed: 1"],
    );
}

#[test]
fn a_chain_runs_link_by_link_and_is_read_back() {
    expect(
        "atomic_chain",
        &[
            "link 0: reserve-stock done in attempt 1",
            "link 1: charge-account done in attempt 1",
            "link 2: write-receipt done in attempt 1",
            "        receipt for the chain that job 1 began",
            "stock 4, account 200 cents, receipts 1",
        ],
    );
}

#[test]
fn a_lost_reply_is_asked_for_again_under_the_same_key_and_charged_once() {
    expect(
        "staged_charge",
        &[
            "attempt 1: retried: connection reset before the reply arrived",
            "attempt 2: done",
            "calls 2, the same key each time: true, charges 1",
            "order 7 is paid by ch_1 over 800 cents",
        ],
    );
}

#[test]
fn a_parked_effect_is_resolved_by_a_person_and_not_called_again() {
    expect(
        "effect_park",
        &[
            "effect 1 \"transfer\": uncertain, policy park",
            "  heard: connection reset before the answer arrived",
            "  resolved by ada: it happened; job 1 reopened",
            "job 1: finished, result \"transfer 1 over 800 cents\"",
            "the bank was asked 1 time",
        ],
    );
}

#[test]
fn a_job_out_of_attempts_becomes_a_case_and_is_reopened() {
    expect(
        "retries_and_a_case",
        &[
            "case 1: ship-parcel used 3 of 3 attempts",
            "  attempt 1: retried: the label printer is out of paper",
            "  attempt 2: retried: the label printer is out of paper",
            "  attempt 3: retired: the label printer is out of paper",
            "parcels shipped: 0",
            "paper refilled, case reopened",
            "job 1: finished, done in attempt 1, claimed 4 times in all",
            "parcels shipped: 1",
        ],
    );
}

#[test]
fn a_stopping_worker_finishes_what_runs_and_hands_back_the_rest() {
    expect(
        "graceful_shutdown",
        &[
            "first worker: a page begun",
            "first worker: told to stop, the page finished",
            "finished: done, attempts used: 1",
            "ready: released, attempts used: 0",
            "ready: released, attempts used: 0",
            "second worker: a page written in attempt 1",
            "second worker: a page written in attempt 1",
        ],
    );
}

#[test]
fn a_webhook_delivered_again_adds_nothing_and_gets_the_first_answer() {
    expect(
        "once_webhook",
        &[
            "webhook evt_1: first, balance 500",
            "webhook evt_1: repeat, balance 500",
            "webhook evt_2: first, balance 1000",
            "webhook evt_1: repeat, balance 500",
            "webhook evt_1: refused",
            "job for evt_2: repeat, balance 1000",
            "job for evt_3: first, balance 1500",
            "evt_3 is in the ledger: true",
        ],
    );
}

#[test]
fn of_three_evaluations_one_opens_the_incident() {
    expect(
        "guard",
        &[
            "3 evaluations, 1 open incident, 2 found it changed",
            "opened and closed again: what is open looks unchanged",
            "the counter of incidents:8 says changed",
        ],
    );
}

#[test]
fn a_request_repeated_under_its_idempotency_key_is_charged_once() {
    expect(
        "idempotency_header",
        &[
            r#"key "k1", oars: 201 fresh "order 1: oars""#,
            r#"key "k1", oars: 201 replayed "order 1: oars""#,
            r#"key "k1", boat: 422 fresh "this idempotency key was used for a different request; use a new key""#,
            "key \"\", oars: 400 fresh \"idempotency-key: the header is missing; send one key for each operation, and the \
             same key on every retry\"",
            r#"key "k2", boat: 402 fresh """#,
            r#"key "k2", boat: 402 replayed """#,
            "1 order, 200 cents left",
        ],
    );
}

#[test]
fn a_payment_reported_twice_moves_its_order_once() {
    expect(
        "transition",
        &[
            "2 jobs done, 1 found it handled already, till 800 cents",
            "application code is told: row 8 of orders does not have the status \"pending\"",
            "table: \"orders; drop table orders\" is not a plain table name; use a name such as orders or shop.orders",
        ],
    );
}

#[test]
fn bookings_that_share_a_commit_fail_alone() {
    expect(
        "batch",
        &[
            "8 seats booked, 8 guests",
            "8 done, 2 cancelled, 0 batches undone",
            "seat 1 is taken",
            "seat 2 is taken",
        ],
    );
}

#[test]
fn a_rollout_is_turned_up_and_back() {
    expect(
        "rollout",
        &[
            "warm-greeting: 0 the new way, 100 the old way",
            "ada set warm-greeting to 30 %",
            "warm-greeting: 26 the new way, 74 the old way",
            "ada set warm-greeting to 100 %",
            "warm-greeting: 100 the new way, 0 the old way",
            "ada set warm-greeting to 0 %",
            "warm-greeting: 0 the new way, 100 the old way",
        ],
    );
}

/// The blocks of a page that begin with this mark.
fn blocks(page: &str, mark: &str) -> Vec<String> {
    let fence = format!("```{mark}\n");
    let parts = page.split(fence.as_str()).skip(1);
    parts
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_quickstart_of_adopted_tables_runs_as_the_page_says() {
    let page = std::fs::read_to_string(root().join("docs/adopt.md")).unwrap();
    for server in proof::bed::postgres_servers() {
        let case = "examples::the_quickstart_of_adopted_tables_runs";
        let database = proof::bed::Database::fresh(&server, case).await.unwrap();
        let mut db = <sqlx::PgConnection as sqlx::Connection>::connect(&database.url)
            .await
            .unwrap();
        let table = sqlx::raw_sql(sqlx::AssertSqlSafe(blocks(&page, "sql")[0].clone()));
        table.execute(&mut db).await.unwrap();
        // What the page does on the command line.
        let rowlock = rowlock::postgres::Rowlock::open(&database.url).unwrap();
        rowlock.migrate().await.unwrap();
        let columns = rowlock::adopt::Columns::due("remind_at");
        rowlock::adopt::Adopted::migrate(&rowlock, "reminders", &columns)
            .await
            .unwrap();
        let run = Command::new(BUILT.join("adopt"))
            .env("DATABASE_URL", &database.url)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(
            printed,
            "2 reminders sent, 1 retired\n",
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        assert!(page.contains(printed.trim_end()), "the page says what it prints");
        let error: String = sqlx::query_scalar("select last_error from reminders where last_error is not null")
            .fetch_one(&mut db)
            .await
            .unwrap();
        assert_eq!(error, "\"nobody\" is no address");
        database.remove().await.unwrap();
    }
}

#[test]
fn the_page_of_adopted_tables_shows_its_example_as_it_is() {
    let page = std::fs::read_to_string(root().join("docs/adopt.md")).unwrap();
    let example = std::fs::read_to_string(root().join("crates/rowlock/examples/adopt.rs")).unwrap();
    let code = example.lines().filter(|line| !line.starts_with("//!"));
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(
        plain(&blocks(&page, "rust")[0]),
        plain(&code.collect::<Vec<_>>().join("\n"))
    );
}

#[test]
fn every_example_is_tested_and_short() {
    let source = std::fs::read_to_string(root().join("crates/proof/tests/examples.rs")).unwrap();
    let folders = ["crates/rowlock/examples", "crates/rowlock-axum/examples"];
    let entries = folders.map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            source.contains(&format!("\"{name}\"")),
            "example {name} is not run by any test"
        );
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 120, "example {name} has {lines} lines, at most 120");
    }
}

#[test]
fn the_readme_shows_the_hello_example_as_it_is() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```rust\n").expect("the README has a rust block");
    let (shown, _) = rest.split_once("```").unwrap();
    let example = std::fs::read_to_string(root().join("crates/rowlock/examples/hello.rs")).unwrap();
    let code = example.lines().filter(|line| !line.starts_with("//!"));
    // Spaces do not count: the formatter may lay out the example anew.
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(plain(shown), plain(&code.collect::<Vec<_>>().join("\n")));
}
