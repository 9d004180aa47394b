//! `rowlock verify`: what it prints, and the exit codes that scripts go by.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{Database, File, lines, postgres_urls, rowlock};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

/// A file with two jobs that are ready.
fn two_jobs() -> File {
    let file = File::migrated();
    for order in ["1", "2"] {
        file.ok(&["enqueue", "charge", order]);
    }
    file
}

/// SQL by hand, on the file.
async fn damage(file: &File, sql: &'static str) {
    let mut db = SqliteConnection::connect(&file.url).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_sound_database_exits_with_0_and_lists_every_check() {
    let file = two_jobs();
    let said = lines(&file.ok(&["verify"]));
    assert_eq!(said.len(), 18, "{said:?}");
    assert_eq!(said[0], "check rows broken jobs");
    assert_eq!(said[1], "schema holds 14 0");
    assert!(said.contains(&"places holds 2 0".to_owned()), "{said:?}");
    let part = lines(&file.ok(&["verify", "--rows", "1"]));
    assert!(part.contains(&"places holds newest 1 0".to_owned()), "{part:?}");

    let all = json(&file.ok(&["verify", "--json"]));
    assert_eq!(all["holds"], true);
    let checks = all["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 17);
    let places = checks.iter().find(|c| c["check"] == "places").unwrap();
    assert_eq!(places["state"], "holds");
    assert_eq!((&places["looked"], &places["whole"]), (&2.into(), &true.into()));
    assert_eq!(
        (&places["broken"], &places["breaches"]),
        (&0.into(), &Value::Array(vec![]))
    );
}

#[tokio::test]
async fn a_broken_invariant_exits_with_3_names_its_jobs_and_says_what_to_do() {
    let file = two_jobs();
    damage(&file, "delete from rowlock_job").await;
    let said = file.run(&["verify"]);
    assert_eq!(said.code, Some(3));
    let out = lines(&said.out);
    assert!(out.contains(&"bodies broken 2 2 1, 2".to_owned()), "{out:?}");
    let told = "bodies: a job that stands somewhere has its body";
    let at = out.iter().position(|line| line == told).unwrap();
    assert_eq!(out[at + 1], "job 1 is ready, but its body is gone");
    assert!(
        said.err
            .starts_with("error: of 17 checks 1 is broken\ntry:   change nothing yet"),
        "{}",
        said.err
    );

    let said = file.run(&["verify", "--json"]);
    assert_eq!(said.code, Some(3));
    let all = json(&said.out);
    assert_eq!(all["holds"], false);
    let checks = all["checks"].as_array().unwrap();
    let bodies = checks.iter().find(|c| c["check"] == "bodies").unwrap();
    assert_eq!((&bodies["state"], &bodies["broken"]), (&"broken".into(), &2.into()));
    assert_eq!(bodies["breaches"][1]["job"], 2);
    assert_eq!(bodies["breaches"][1]["what"], "is ready, but its body is gone");
}

#[tokio::test]
async fn what_is_only_late_exits_with_3_too_and_asks_for_a_worker() {
    let file = two_jobs();
    let silent = "insert into rowlock_worker (id, name, lease_ms, beat, started_at) values (7, 'w', 2000, 1, 1);
        insert into rowlock_lease select id, 1, 7, 1, 10, queue_no, kind_no, 0, 3, 1 from rowlock_ready where id = 1;
        delete from rowlock_ready where id = 1";
    damage(&file, silent).await;
    let said = file.run(&["verify"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert_eq!(
        said.err,
        "error: of 17 checks 1 is late\ntry:   see that a worker runs, and look again in a minute\n"
    );
    assert!(
        lines(&said.out).contains(&"leases late 1 1 1".to_owned()),
        "{}",
        said.out
    );
}

#[tokio::test]
async fn checks_that_did_not_finish_exit_with_1_and_do_not_hold() {
    let file = two_jobs();
    // A view that counts for ever in the place of a table.
    let endless =
        "insert into rowlock_lease select id, 1, 7, 1, 10, queue_no, kind_no, 0, 3, 1 from rowlock_ready where id = 1;
        delete from rowlock_ready where id = 1; drop table rowlock_worker;
        create view rowlock_worker as with recursive s (n) as (select 1 union all select n + 1 from s)
          select -n as id, 2000 as lease_ms, 1 as beat from s";
    damage(&file, endless).await;
    let said = file.run(&["verify", "--seconds", "1"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    let out = lines(&said.out);
    assert!(out.contains(&"owners not finished ?".to_owned()), "{out:?}");
    assert!(
        out.contains(&"ledger holds 0 0".to_owned()),
        "the others go on: {out:?}"
    );
    let told = "error: of 17 checks 2 are not finished\ntry:   give it more --seconds";
    assert!(said.err.starts_with(told), "{}", said.err);
    let all = json(&file.run(&["verify", "--seconds", "1", "--json"]).out);
    assert_eq!(all["holds"], false);
}

#[test]
fn limits_out_of_bounds_are_a_mistake_in_the_command() {
    let file = File::migrated();
    for args in [&["verify", "--rows", "0"], &["verify", "--seconds", "0"]] {
        assert_eq!(file.run(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn postgresql_reads_the_same_in_any_schema() {
    for server in postgres_urls() {
        let database = Database::fresh(&server);
        let run = |args: &[&str]| {
            let mut all = args.to_vec();
            all.extend(["--schema", "mine", "--database", &database.url]);
            rowlock(&all)
        };
        assert_eq!(run(&["migrate"]).code, Some(0));
        assert_eq!(run(&["enqueue", "charge", "1"]).code, Some(0));
        let said = run(&["verify"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
        assert!(
            lines(&said.out).contains(&"bodies holds 1 0".to_owned()),
            "{}",
            said.out
        );
        common::sql(&database.url, "delete from mine.job returning kind");
        let said = run(&["verify"]);
        assert_eq!(said.code, Some(3), "{}", said.out);
        assert!(
            said.out.contains("job 1 is ready, but its body is gone"),
            "{}",
            said.out
        );
    }
}
