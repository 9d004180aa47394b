//! The schema is what the files under `schema` and `functions` say, however it is created, and every statement fits it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use proof::bed::{Database, Server, postgres_servers};
use rowlock::{Admin, postgres::Rowlock};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use crate::steps::catalog::{catalog, difference, script};

/// What `migrate` does after the scripts.
const PARTITIONS: &str = "select rowlock.make_partitions(7, 10000000)";

/// What `rowlock migrate --sql` prints; no database is opened for it.
fn printed() -> String {
    let admin = Admin::open("postgres://localhost/any", "rowlock").unwrap();
    admin.migration_sql().to_owned()
}

fn sql_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../rowlock/sql/postgres")
}

/// Path without ending, and text, of each `.sql` file below a folder, by path.
fn files(folder: PathBuf) -> Vec<(String, String)> {
    fn walk(root: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                walk(root, &path, into);
            } else if path.extension().is_some_and(|e| e == "sql") {
                let name = path.strip_prefix(root).unwrap().with_extension("");
                into.push((name.to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(&folder, &folder, &mut files);
    files.sort();
    files
}

/// Does something on a fresh database; one that failed is kept, to look at.
async fn on_fresh<T>(server: &Server, case: &str, look: impl AsyncFnOnce(&str, &mut PgConnection) -> T) -> T {
    let database = Database::bare(server, &format!("schema::{case}")).await.unwrap();
    let mut pg = PgConnection::connect(&database.url).await.unwrap();
    let seen = look(&database.url, &mut pg).await;
    database.remove().await.unwrap();
    seen
}

/// The files that create the schema, in the order of their names.
fn schema_files() -> Vec<(String, String)> {
    let mut files = files(sql_folder());
    files.retain(|(name, _)| of_the_schema(name));
    files
}

fn of_the_schema(name: &str) -> bool {
    name.starts_with("schema/") || name.starts_with("functions/")
}

/// Runs each file once those are there that it needs, whatever order that is.
async fn run_in_any_order(pg: &mut PgConnection, mut files: Vec<(String, String)>) {
    while !files.is_empty() {
        let before = files.len();
        let mut left = Vec::new();
        for (name, text) in files {
            let run = sqlx::raw_sql(AssertSqlSafe(format!("begin; {text}; commit")))
                .execute(&mut *pg)
                .await;
            if run.is_err() {
                script(pg, "rollback").await.unwrap();
                left.push((name, text));
            }
        }
        assert!(
            left.len() < before,
            "none of these can run: {:?}",
            left.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        files = left;
    }
}

#[tokio::test]
async fn the_schema_on_a_fresh_database_is_what_the_files_say() {
    let case = "the_schema_on_a_fresh_database_is_what_the_files_say";
    let printed = printed();
    for (name, text) in schema_files() {
        assert_eq!(printed.matches(&text).count(), 1, "{name} is not applied once");
    }
    for server in postgres_servers() {
        let said = on_fresh(&server, case, async |_, pg| {
            script(pg, "create schema rowlock").await.unwrap();
            run_in_any_order(pg, schema_files()).await;
            script(pg, PARTITIONS).await.unwrap();
            catalog(pg, "rowlock").await
        });
        let made = on_fresh(&server, case, async |url, pg| {
            Rowlock::open(url).unwrap().migrate().await.unwrap();
            catalog(pg, "rowlock").await
        });
        let (said, made) = (said.await, made.await);
        assert_eq!(
            said,
            made,
            "the files (<) and migrate (>) differ:\n{}",
            difference(&said, &made)
        );
    }
}

#[tokio::test]
async fn functions_that_were_changed_are_as_in_the_files_after_their_hash_was() {
    let case = "functions_that_were_changed_are_as_in_the_files_after_their_hash_was";
    for server in postgres_servers() {
        on_fresh(&server, case, async |url, pg| {
            let rowlock = Rowlock::open(url).unwrap();
            rowlock.migrate().await.unwrap();
            let right = catalog(pg, "rowlock").await;
            let other = "create or replace function rowlock.wake_v1(queue text) returns void
                language sql as $$ select null::void $$;
                drop function rowlock.pause_v1;
                update rowlock.migration set hash = 'another' where version = 0";
            script(pg, other).await.unwrap();
            assert_ne!(catalog(pg, "rowlock").await, right);
            assert_eq!(rowlock.migrate().await.unwrap(), ["functions"]);
            let again = catalog(pg, "rowlock").await;
            assert!(again == right, "{}", difference(&right, &again));
        })
        .await;
    }
}

#[tokio::test]
async fn the_comparison_sees_every_kind_of_difference() {
    let case = "the_comparison_sees_every_kind_of_difference";
    let mutants = [
        ("payload json not null", "payload json", "column job.payload"),
        ("if_retired json", "if_retired jsonb", "column job.if_retired"),
        (
            "dead boolean not null default false",
            "dead boolean not null default true",
            "column worker.dead",
        ),
        (
            "generated always as identity",
            "generated by default as identity",
            "column audit.no",
        ),
        (
            "create unique index ready_id",
            "create index ready_id",
            "index CREATE INDEX ready_id",
        ),
        ("'replied', 'undone'", "'replied'", "constraint effect_state_check"),
        ("with (fillfactor = 50)", "with (fillfactor = 60)", "table worker"),
        (
            "partition by range (ended_at)",
            "partition by list (ended_at)",
            "partitioning outcome",
        ),
        ("else 'finished'", "else 'gone'", "view jobs"),
        (
            "width constant bigint := 10000000",
            "width constant bigint := 20000000",
            "function make_partitions",
        ),
        (
            "revoke all on function rowlock.drop_history from public;",
            "",
            "function drop_history",
        ),
        (
            "create index audit_id on rowlock.audit (id);",
            "",
            "index CREATE INDEX audit_id",
        ),
    ];
    for server in postgres_servers() {
        on_fresh(&server, case, async |_, pg| {
            let printed = printed();
            let (schema, _) = printed.split_once(PARTITIONS).unwrap();
            script(pg, schema).await.unwrap();
            let right = catalog(pg, "rowlock").await;
            for (from, to, named) in mutants {
                let mutant = schema.replacen(from, to, 1);
                assert_ne!(mutant, schema, "{from:?} is not in the schema any more");
                let anew = "set client_min_messages = error; drop schema rowlock cascade;";
                script(pg, &format!("{anew} {mutant}")).await.unwrap();
                let found = difference(&right, &catalog(pg, "rowlock").await);
                assert!(
                    found.contains(named),
                    "{from:?} -> {to:?} should show as {named:?}, shows as:\n{found}"
                );
            }
        })
        .await;
    }
}

#[tokio::test]
async fn migrating_again_is_a_no_op() {
    for server in postgres_servers() {
        on_fresh(&server, "migrating_again_is_a_no_op", async |url, pg| {
            let rowlock = Rowlock::open(url).unwrap();
            let applied = rowlock.migrate().await.unwrap();
            assert_eq!(applied, ["0001 base", "functions"]);
            let once = catalog(pg, "rowlock").await;

            assert_eq!(rowlock.migrate().await.unwrap(), [""; 0]);
            let twice = catalog(pg, "rowlock").await;
            assert!(once == twice, "{}", difference(&once, &twice));
        })
        .await;
    }
}

/// The catalog after migrating a schema of this name, by the library or by the text it prints, and the note of what
/// ran.
async fn migrated(server: &Server, schema: &str, by_hand: bool) -> (BTreeSet<String>, String) {
    let case = "every_way_to_migrate_gives_the_same_catalog";
    on_fresh(server, case, async |url, pg| {
        let admin = Admin::open(url, schema).unwrap();
        if by_hand {
            script(pg, admin.migration_sql()).await.unwrap();
        } else {
            admin.migrate().await.unwrap();
        }
        admin.check_schema().await.unwrap();
        let note = "select string_agg(format('%s %s %s %s %s', version, name, oldest, hash, release), ',' order by version) from";
        let note = sqlx::query_scalar(AssertSqlSafe(format!("{note} {schema}.migration")))
            .fetch_one(&mut *pg)
            .await;
        (catalog(pg, schema).await, note.unwrap())
    })
    .await
}

#[tokio::test]
async fn every_way_to_migrate_gives_the_same_catalog() {
    for server in postgres_servers() {
        let (library, note) = migrated(&server, "rowlock", false).await;
        for (schema, by_hand) in [("rowlock", true), ("jobs_2", false), ("jobs_2", true)] {
            let (found, noted) = migrated(&server, schema, by_hand).await;
            assert!(
                library == found,
                "{schema}, by hand {by_hand}:\n{}",
                difference(&library, &found)
            );
            assert_eq!(note, noted, "{schema}, by hand {by_hand}");
        }
    }
}

/// A name is enough to call, to grant and to replace a function.
#[tokio::test]
async fn no_two_functions_of_the_schema_share_a_name() {
    for server in postgres_servers() {
        on_fresh(
            &server,
            "no_two_functions_of_the_schema_share_a_name",
            async |url, pg| {
                Rowlock::open(url).unwrap().migrate().await.unwrap();
                let named = "select proname::text from pg_proc where pronamespace = 'rowlock'::regnamespace order by 1";
                let named: Vec<String> = sqlx::query_scalar(named).fetch_all(pg).await.unwrap();
                assert!(named.len() > 40, "{named:?}");
                let twice = named.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]);
                assert_eq!(twice.collect::<Vec<_>>(), [""; 0]);
            },
        )
        .await;
    }
}

/// A table whose columns are called as the places of the templates.
const ADOPTEE: &str = "create table adoptee (
    id bigint primary key, due timestamptz, claimed_at timestamptz, claimed_by text, claim_token uuid, attempts int,
    max_attempts int, inactive boolean, last_error text, last_error_at timestamptz)";

#[tokio::test]
async fn every_statement_prepares_on_any_schema() {
    let mut statements = files(sql_folder());
    statements.retain(|(name, _)| !of_the_schema(name));
    assert!(statements.len() > 20, "{} statements found", statements.len());
    for server in postgres_servers() {
        for schema in ["rowlock", "jobs_2"] {
            on_fresh(&server, "every_statement_prepares_on_any_schema", async |url, pg| {
                Admin::open(url, schema).unwrap().migrate().await.unwrap();
                script(pg, ADOPTEE).await.unwrap();
                for (name, text) in &statements {
                    let text = text.replace("rowlock.", &format!("{schema}."));
                    let text = match name.starts_with("adopt/") {
                        // Those of adopted tables have places for the names.
                        true => text
                            .replace("{table}", "adoptee")
                            .replace("{order}", "t.due")
                            .replace("{id_type}", "bigint")
                            .replace(['{', '}'], ""),
                        false => text,
                    };
                    let prepared = pg.prepare(AssertSqlSafe(text).into_sql_str()).await;
                    assert!(prepared.is_ok(), "{name} on {schema}: {:?}", prepared.err());
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn many_processes_may_migrate_at_once() {
    for server in postgres_servers() {
        on_fresh(&server, "many_processes_may_migrate_at_once", async |url, pg| {
            let migrations = (0..6).map(|_| {
                let rowlock = Rowlock::open(url).unwrap();
                tokio::spawn(async move { rowlock.migrate().await.unwrap() })
            });
            let mut applied = Vec::new();
            for migration in migrations.collect::<Vec<_>>() {
                applied.extend(migration.await.unwrap());
            }
            let ran: Result<i64, _> = sqlx::query_scalar("select count(*) from rowlock.migration")
                .fetch_one(pg)
                .await;
            assert_eq!(
                applied.len() as i64,
                ran.unwrap(),
                "each migration was applied by one of them"
            );
        })
        .await;
    }
}
