use std::{collections::BTreeSet, path::Path, str::FromStr};

use sqlx::{Executor, SqlSafeStr};

use super::*;
use crate::store::{
    schema::{Functions, SchemaFound},
    sqlite::{
        SCHEMA,
        migrate::{BASE, FUNCTIONS},
        migration_sql, sql,
    },
};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/sqlite")
}

/// The files in a folder, by their relative paths.
fn files(root: &Path) -> Vec<String> {
    fn walk(folder: &Path, into: &mut Vec<std::path::PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => walk(&path, into),
                false => into.push(path),
            }
        }
    }
    let mut paths = Vec::new();
    walk(root, &mut paths);
    let named = |path: std::path::PathBuf| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    paths.into_iter().map(named).collect()
}

fn of_the_schema(path: &str) -> bool {
    path.starts_with("schema/") || path.starts_with("functions/")
}

/// Every object with its text, without the line breaks that an added column leaves in the text.
async fn objects(conn: &mut SqliteConnection) -> Vec<(String, String, Option<String>)> {
    let mut found: Vec<(String, String, Option<String>)> =
        sqlx::query_as("select type, name, sql from sqlite_schema order by type, name")
            .fetch_all(conn)
            .await
            .unwrap();
    for (_, _, sql) in &mut found {
        let words = sql.as_ref().map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "));
        *sql = words.map(|s| s.replace(" ,", ",").replace(" )", ")"));
    }
    found
}

#[tokio::test]
async fn many_stores_may_migrate_at_once() {
    let rig = Rig::bare();
    assert_eq!(rig.store.schema().await.unwrap(), SchemaFound::Missing);
    let stores: Vec<_> = (0..8).map(|_| rig.another()).collect();
    let tasks: Vec<_> = stores
        .into_iter()
        .map(|s| tokio::spawn(async move { s.migrate(&[]).await.unwrap() }))
        .collect();
    let mut applied = Vec::new();
    for task in tasks {
        applied.extend(task.await.unwrap());
    }
    applied.sort();
    assert_eq!(applied, ["0001 base", "functions"]);
    let found = SchemaFound::At {
        version: SCHEMA,
        oldest: 1,
        functions: Functions::Same,
    };
    assert_eq!(rig.store.schema().await.unwrap(), found);
    assert!(rig.store.migrate(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    sqlx::raw_sql("insert into rowlock_migration (version, name, oldest) values (99, 'from the future', 50)")
        .execute(&mut conn)
        .await
        .unwrap();
    assert!(rig.store.migrate(&[]).await.unwrap().is_empty());
    assert_eq!(
        rig.store.schema().await.unwrap(),
        SchemaFound::At {
            version: 99,
            oldest: 50,
            functions: Functions::Same,
        }
    );
}

#[tokio::test]
async fn the_schema_is_what_its_files_say_and_so_is_the_printed_script() {
    let migrated = Rig::new().await;
    let by_files = Rig::bare();
    let mut listed: Vec<&str> = BASE.iter().chain(FUNCTIONS).copied().collect();
    let run = sqlx::raw_sql(sqlx::AssertSqlSafe(listed.join("\n")));
    run.execute(&mut by_files.conn().await).await.unwrap();
    let printed = Rig::bare();
    sqlx::raw_sql(sqlx::AssertSqlSafe(migration_sql()))
        .execute(&mut printed.conn().await)
        .await
        .unwrap();
    let expected = objects(&mut migrated.conn().await).await;
    assert!(!expected.is_empty());
    assert_eq!(objects(&mut by_files.conn().await).await, expected);
    assert_eq!(objects(&mut printed.conn().await).await, expected);
    assert!(printed.store.migrate(&[]).await.unwrap().is_empty());

    let on_disk = files(&folder()).into_iter().filter(|path| of_the_schema(path));
    let mut on_disk: Vec<String> = on_disk
        .map(|path| std::fs::read_to_string(folder().join(path)).unwrap())
        .collect();
    on_disk.sort();
    listed.sort_unstable();
    assert_eq!(listed, on_disk, "every file is in the list");
}

#[tokio::test]
async fn triggers_that_were_changed_are_as_in_the_files_after_their_hash_was() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    let right = objects(&mut conn).await;
    let other = "drop trigger rowlock_verb_end; update rowlock_migration set hash = 'another' where version = 0";
    sqlx::raw_sql(other).execute(&mut conn).await.unwrap();
    assert_ne!(objects(&mut conn).await, right);
    assert_eq!(rig.store.migrate(&[]).await.unwrap(), ["functions"]);
    assert_eq!(objects(&mut conn).await, right);
}

#[tokio::test]
async fn every_statement_prepares_and_every_file_has_a_caller() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    for (name, text) in sql::FILES {
        let mut lines = text.lines();
        assert!(
            lines.next().is_some_and(|l| l.starts_with("-- ")),
            "{name}: line one is the promise"
        );
        assert!(
            lines.next().is_some_and(|l| l.starts_with("-- Index: ")),
            "{name}: line two is the index"
        );
        if let Err(error) = conn.prepare(text.into_sql_str()).await {
            panic!("{name}: {error}");
        }
    }
    let called: BTreeSet<String> = sql::FILES.iter().map(|(name, _)| format!("{name}.sql")).collect();
    let found: BTreeSet<String> = files(&folder())
        .into_iter()
        .filter(|path| !of_the_schema(path))
        .collect();
    assert_eq!(found, called);
}

/// Compares the second line of each file with the planner's output.
#[tokio::test]
async fn hot_statements_use_their_index() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    let mut plan = async |file: &str| -> String {
        let (_, text) = sql::FILES.iter().find(|(name, _)| *name == file).unwrap();
        let explain = format!("explain query plan {text}");
        let rows: Vec<(i64, i64, i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(explain))
            .fetch_all(&mut conn)
            .await
            .unwrap();
        rows.into_iter().map(|r| r.3 + "\n").collect()
    };
    let claim = plan("claim/take").await;
    let range = "SEARCH r USING COVERING INDEX rowlock_ready_order \
                 (queue_no=? AND kind_no=? AND alone=? AND priority=? AND due_at>? AND due_at<?)";
    assert!(claim.contains(range), "{claim}");
    assert!(!claim.contains("TEMP B-TREE"), "the limit must stop the walk: {claim}");
    for file in ["settle/held", "settle/attempts", "claim/body"] {
        let settle = plan(file).await;
        assert!(settle.contains(" USING INTEGER PRIMARY KEY"), "{settle}");
    }
    let end = plan("effect/end").await;
    let by_name = "SEARCH rowlock_effect USING INDEX sqlite_autoindex_rowlock_effect_1 (id=? AND name=?)";
    assert!(end.contains(by_name), "{end}");
    let doubtful = plan("effect/doubtful").await;
    assert!(
        doubtful.contains("SCAN e USING INDEX rowlock_effect_doubt"),
        "{doubtful}"
    );
    assert!(!doubtful.contains("TEMP B-TREE"), "{doubtful}");
    let status = plan("job/status").await;
    assert!(
        status.contains("SCAN r USING COVERING INDEX rowlock_ready_order"),
        "{status}"
    );
    let chain = plan("job/chain").await;
    assert!(
        chain.contains("USING COVERING INDEX rowlock_job_chain (chain=?)"),
        "{chain}"
    );
    let due = plan("wait/due").await;
    assert!(due.contains("USING COVERING INDEX rowlock_waiting_limit"), "{due}");
    for file in ["wait/complete_ready", "wait/complete_gone"] {
        let moves = plan(file).await;
        assert!(moves.contains("rowlock_waiting_name (name=?)"), "{moves}");
    }
    let lock = plan("guard/body_lock_take").await;
    assert!(!lock.contains("SCAN b") && !lock.contains("SCAN l"), "{lock}");
    let alone = plan("claim/alone_due").await;
    assert!(alone.contains("priority=? AND due_at<?"), "{alone}");
}

#[tokio::test]
async fn a_database_that_is_no_file_is_refused_with_a_sentence() {
    let memory = SqliteConnectOptions::from_str("sqlite::memory:").unwrap();
    let store = SqliteStore::new(memory, Timing::of_lease(LEASE), Clock::default());
    let error = store.migrate(&[]).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("not WAL"), "{source}");
}

/// The text directly between the brackets that open here, without the text in nested brackets.
fn between_brackets(text: &str) -> String {
    let (mut depth, mut direct) = (1, String::new());
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 1 => direct.push(letter),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    direct
}

/// An order inside an aggregate is new in SQLite 3.44. With a single such trigger, an older tool cannot open the file
/// at all, not even to read the user's own tables.
#[tokio::test]
async fn a_tool_with_an_older_sqlite_can_open_the_file() {
    let rig = Rig::new().await;
    let mut aggregates = 0;
    for (_, name, sql) in objects(&mut rig.conn().await).await {
        let sql = sql.unwrap_or_default();
        for aggregate in ["json_group_array(", "json_group_object(", "group_concat("] {
            for (at, _) in sql.match_indices(aggregate) {
                aggregates += 1;
                let inside = between_brackets(&sql[at + aggregate.len()..]);
                assert!(!inside.contains("order by"), "{name}: {inside}");
            }
        }
    }
    assert!(aggregates > 0, "the history of a case is one");
}
