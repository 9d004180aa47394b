//! `rowlock verify`: what it prints, and the exit codes that scripts go by.

use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

use crate::common::{self, Database, File, lines, postgres_urls, rowlock};

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
    assert_eq!(said[0], "check rows broken claim");
    assert_eq!(said[1], "schema holds 1 0 every migration up to the newest one has run");
    let places = "a job stands in one place at most";
    assert!(said.contains(&format!("places holds 2 0 {places}")), "{said:?}");
    let part = lines(&file.ok(&["verify", "--rows", "1"]));
    assert!(part.contains(&format!("places holds newest 1 0 {places}")), "{part:?}");

    let all = json(&file.ok(&["verify", "--json"]));
    assert_eq!(all["holds"], true);
    let checks = all["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 17);
    let places = checks.iter().find(|c| c["check"] == "places").unwrap();
    assert_eq!(places["state"], "holds");
    assert_eq!((&places["rows"], &places["complete"]), (&2.into(), &true.into()));
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
    let claim = "a job that stands somewhere has its body";
    assert!(out.contains(&format!("bodies broken 2 2 {claim}")), "{out:?}");
    let told = format!("bodies: {claim}");
    let at = out.iter().position(|line| *line == told).unwrap();
    assert_eq!(out[at + 1], "job 1 is ready, but its body is gone");
    assert!(
        said.err
            .starts_with("error: 1 of 17 checks is broken\ntry:   change nothing yet"),
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
        "error: 1 of 17 checks is late\ntry:   make sure that a worker runs, and verify again in a minute\n"
    );
    assert!(
        lines(&said.out).contains(&"leases late 1 1 leases of silent workers are ended in time".to_owned()),
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
    let has = |start: &str| out.iter().any(|line| line.starts_with(start));
    assert!(has("owners not finished ? a lease has its worker"), "{out:?}");
    assert!(has("ledger holds 0 0 "), "the others go on: {out:?}");
    let told = "error: 2 of 17 checks are not finished\ntry:   use more --seconds";
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
            lines(&said.out).contains(&"bodies holds 1 0 a job that stands somewhere has its body".to_owned()),
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
