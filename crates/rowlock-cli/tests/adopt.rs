//! `rowlock adopt`: what it finds, prints and applies; the quickstart of its page; and the demo of the adopted table.

use crate::common::{self, Database, File, Said, assert_nothing_is_left, demo, postgres_urls, rowlock, said};

fn run(database: &Database, args: &[&str]) -> Said {
    rowlock(&[args, &["--database", &database.url]].concat())
}

/// The fenced blocks of the page that begin with this mark.
fn blocks(mark: &str) -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/adopt.md")).unwrap();
    let fence = format!("```{mark}\n");
    let parts = page
        .split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    parts.map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_quickstart_do_what_the_page_says() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        make(&database, &blocks("sql")[0]);
        let commands = blocks("sh")[0].clone();
        let exits: Vec<Option<i32>> = commands
            .lines()
            .map(|line| run(&database, &line.split(' ').skip(1).collect::<Vec<_>>()).code)
            .collect();
        assert_eq!(exits, [Some(0), Some(3), Some(0)], "{commands}");
    }
}

/// Runs a page's script as psql would.
fn make(database: &Database, text: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(&database.url)
            .await
            .unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned()))
            .execute(&mut conn)
            .await
            .unwrap();
    });
}

#[test]
fn a_table_is_looked_at_migrated_on_request_and_then_ready() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        make(&database, "create table t (id int primary key, due_at timestamptz)");
        let adopt = |more: &[&str]| run(&database, &[&["adopt", "t", "--due", "due_at"], more].concat());
        let seen = adopt(&[]);
        assert_eq!(
            (seen.code, seen.err.as_str()),
            (Some(3), "error: public.t needs a migration; run it with --apply\n")
        );
        assert!(
            seen.out
                .contains("create index concurrently if not exists \"t_rowlock_due\""),
            "{}",
            seen.out
        );
        let columns = "select count(*)::text from information_schema.columns where table_name = 't'";
        assert_eq!(common::sql(&database.url, columns), ["2"], "looking changes nothing");

        let json: serde_json::Value = serde_json::from_str(&adopt(&["--json"]).out).unwrap();
        assert_eq!((&json["ready"], &json["table"]), (&false.into(), &"public.t".into()));
        assert_eq!(json["columns"].as_array().unwrap().len(), 9);

        let applied = adopt(&["--apply"]);
        assert_eq!((applied.code, applied.err.as_str()), (Some(0), ""), "{}", applied.out);
        assert!(applied.out.ends_with("public.t is ready\n"), "{}", applied.out);
        assert_eq!(common::sql(&database.url, columns), ["10"]);
        let again = adopt(&["--json", "--apply"]);
        let json: serde_json::Value = serde_json::from_str(&again.out).unwrap();
        assert_eq!(
            (&json["ready"], &json["applied"]),
            (&true.into(), &serde_json::json!([]))
        );
    }
}

#[test]
fn what_cannot_be_adopted_exits_with_its_reason() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        make(&database, "create table t (id int, due_at timestamptz)");
        let said = run(&database, &["adopt", "t", "--due", "due_at"]);
        assert_eq!(said.code, Some(3));
        assert!(
            said.out.contains("problem: there is no primary key; add one"),
            "{}",
            said.out
        );
        let said = run(&database, &["adopt", "t", "--due", "due_at", "--apply"]);
        assert_eq!((said.code, said.out.as_str()), (Some(5), ""));
        assert!(
            said.err
                .starts_with("error: public.t cannot be adopted: there is no primary key"),
            "{}",
            said.err
        );
        let said = run(&database, &["adopt", "nowhere", "--due", "due_at"]);
        assert_eq!(said.code, Some(4));
        assert!(said.err.starts_with("error: no table nowhere; "), "{}", said.err);
    }
}

#[test]
fn on_sqlite_it_refuses_and_says_what_to_do_instead() {
    let file = File::migrated();
    let said = file.run(&["adopt", "t", "--due", "due_at"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(
        said.err.starts_with("error: adopt works on PostgreSQL only\n"),
        "{}",
        said.err
    );
    let temp = tempfile::tempdir().unwrap();
    let said = common::said(demo(temp.path(), &["snoozes"]));
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    let expected = "error: demo snoozes needs PostgreSQL, and --database does not name one\n";
    assert!(said.err.starts_with(expected), "{}", said.err);
}

#[test]
fn every_reminder_is_sent_once_while_workers_are_killed() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        let temp = tempfile::tempdir().unwrap();
        let args = [
            "snoozes",
            "--json",
            "--rows",
            "600",
            "--kills",
            "6",
            "--database",
            &database.url,
        ];
        let said = said(demo(temp.path(), &args));
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
        let found: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&said.out).unwrap();
        let mut fields: Vec<&str> = found.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            ["doubled", "kills", "lost", "retired", "rows", "seconds", "sent"]
        );
        for (field, expected) in [
            ("rows", 600),
            ("sent", 594),
            ("lost", 0),
            ("doubled", 0),
            ("retired", 6),
            ("kills", 6),
        ] {
            assert_eq!(found[field], expected, "{field}: {}", said.out);
        }
        assert_nothing_is_left(temp.path());
        assert_eq!(database.schemas(), ["public"]);
    }
}
