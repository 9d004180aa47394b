//! Migrate: many concurrent callers are safe, what is missing is applied once and in order, and a schema that does not
//! fit is refused with one sentence.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use rowlock::{Admin, Ended, Error, State, atomic};

use super::db::Rowlock;
use super::{Bed, Running, note, until};

async fn eight_that_migrate_at_once_apply_each_migration_once(bed: &Bed) {
    let mut handles = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let rowlock = Rowlock::open(&bed.database.queue_url).unwrap();
        handles.spawn(async move { rowlock.migrate().await });
    }
    let mut applied = Vec::new();
    while let Some(names) = handles.join_next().await {
        applied.extend(names.unwrap().unwrap());
    }
    applied.sort();
    assert_eq!(applied, ["0001 base", "functions"]);
    bed.rowlock.check_schema().await.unwrap();
    assert!(
        bed.rowlock.migrate().await.unwrap().is_empty(),
        "a second time there is nothing to do"
    );
}

const MISSING: &str = "the database has no rowlock schema, but this binary needs schema 1; run `rowlock migrate`";

async fn a_missing_schema_is_one_sentence_with_the_command_that_helps(bed: &Bed) {
    let said = |result: rowlock::Result<()>| match result {
        Err(error @ Error::SchemaBehind { .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(said(bed.rowlock.check_schema().await), MISSING);
    assert_eq!(
        said(Rowlock::connect(&bed.database.queue_url).await.map(|_| ())),
        MISSING
    );
    assert_eq!(
        said(
            Admin::open(&bed.database.queue_url, "rowlock")
                .unwrap()
                .check_schema()
                .await
        ),
        MISSING
    );
    assert_eq!(
        said(bed.worker().handle(atomic(note)).run_until(async {}).await),
        MISSING
    );
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn a_newer_schema_that_allows_this_binary_warns_and_works(bed: &Bed) {
    bed.run("insert into rowlock.migration (version, name, oldest) values (2, 'from the future', 1)")
        .await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    {
        // This task never leaves its thread, so a subscriber for the thread hears it.
        let _heard = tracing::subscriber::set_default(subscriber);
        bed.rowlock.check_schema().await.unwrap();
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        logged.contains("WARN") && logged.contains("the database has schema 2, newer than this binary's (1)"),
        "{logged}"
    );

    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
    assert!(
        bed.rowlock.migrate().await.unwrap().is_empty(),
        "an older binary changes nothing"
    );
    assert_eq!(bed.count("select count(*) from rowlock.migration").await, 3);
}

async fn a_newer_schema_that_does_not_allow_this_binary_refuses_it(bed: &Bed) {
    bed.run("insert into rowlock.migration (version, name, oldest) values (3, 'from the future', 2)")
        .await;
    let refused = "the database has schema 3, which needs binaries of schema 2 or newer, but this one is of schema 1; \
                   deploy a newer binary";
    assert_eq!(bed.rowlock.check_schema().await.unwrap_err().to_string(), refused);
    let worker = bed.worker().handle(atomic(note)).run_until(async {}).await;
    assert_eq!(worker.unwrap_err().to_string(), refused);
    assert_eq!(bed.count("select count(*) from rowlock.worker").await, 0);
}

async fn the_printed_sql_makes_the_same_schema_as_migrate(bed: &Bed) {
    let admin = Admin::open(&bed.database.queue_url, "rowlock").unwrap();
    bed.run_as_it_is(admin.migration_sql()).await;
    admin.check_schema().await.unwrap();
    assert!(bed.rowlock.migrate().await.unwrap().is_empty());
    bed.run("create table ledger (job bigint not null, note text not null)")
        .await;
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
}

const UNKNOWN: &str = "the database has a Rowlock schema of an unreleased version, from which nothing leads to this \
                       binary's; use another database, or remove that schema with all its jobs, then run \
                       `rowlock migrate`";

/// Everybody who would use the schema says the one sentence.
async fn is_refused_as_unknown(bed: &Bed) {
    let connected = Rowlock::connect(&bed.database.queue_url).await.map(|_| ());
    let said = [
        bed.rowlock.migrate().await.map(|_| ()),
        bed.rowlock.check_schema().await,
        connected,
        bed.worker().handle(atomic(note)).run_until(async {}).await,
    ];
    for said in said {
        assert!(matches!(said, Err(Error::SchemaUnknown)), "{said:?}");
        assert_eq!(said.unwrap_err().to_string(), UNKNOWN);
    }
}

async fn a_schema_from_before_the_base_is_refused_and_left_alone(bed: &Bed) {
    if !bed.database.is_sqlite() {
        bed.run_as_it_is("create schema rowlock").await;
    }
    bed.run("create table rowlock.migration (version int primary key, name text not null, oldest int not null)")
        .await;
    bed.run("insert into rowlock.migration (version, name, oldest) values (1, 'foundation', 1), (14, 'protocol', 10)")
        .await;
    is_refused_as_unknown(bed).await;
    assert_eq!(bed.count("select count(*) from rowlock.migration").await, 2);
    // The first table that a migrate would have made besides.
    bed.run("create table rowlock.job (id int primary key)").await;
}

async fn a_schema_of_another_base_is_refused_and_left_alone(bed: &Bed) {
    bed.run("update rowlock.migration set hash = 'another' where version = 1")
        .await;
    is_refused_as_unknown(bed).await;
    let left = "select count(*) from rowlock.migration where hash = 'another' and version = 1";
    assert_eq!(bed.count(left).await, 1);
    assert_eq!(bed.count("select count(*) from rowlock.worker").await, 0);
}

/// Two made-up migrations; the second needs the first.
const FIRST: (&str, i32, &str) = ("first", 1, "create table first_made_up (n int);");
const SECOND: (&str, i32, &str) = (
    "second",
    3,
    "create table second_made_up as select n from first_made_up;",
);

async fn a_migration_after_the_base_is_applied_once_in_order_and_shuts_older_binaries_out(bed: &Bed) {
    let applied = bed.rowlock.migrate_with(&[FIRST]).await.unwrap();
    assert_eq!(applied, ["0002 first", "functions"]);
    assert_eq!(bed.rowlock.migrate_with(&[FIRST]).await.unwrap(), [""; 0], "once");
    bed.rowlock.check_schema().await.unwrap();
    let applied = bed.rowlock.migrate_with(&[FIRST, SECOND]).await.unwrap();
    assert_eq!(applied, ["0003 second", "functions"]);
    for (name, version, oldest) in [("base", 1, 1), ("first", 2, 1), ("second", 3, 3)] {
        let recorded = format!(
            "select count(*) from rowlock.migration
             where name = '{name}' and version = {version} and oldest = {oldest} and hash <> ''"
        );
        assert_eq!(bed.count(&recorded).await, 1, "{name}");
    }
    // This binary speaks 1, so it is the older one now.
    let refused = "the database has schema 3, which needs binaries of schema 3 or newer, but this one is of schema 1; \
                   deploy a newer binary";
    assert_eq!(bed.rowlock.check_schema().await.unwrap_err().to_string(), refused);
    assert_eq!(
        bed.rowlock.migrate().await.unwrap(),
        [""; 0],
        "an older binary changes nothing"
    );
    assert_eq!(
        bed.count("select cast(max(version) as bigint) from rowlock.migration")
            .await,
        3
    );
}

async fn a_migrate_that_fails_in_the_middle_leaves_nothing_of_itself(bed: &Bed) {
    let before = bed.count("select count(*) from rowlock.migration").await;
    // On a server it is also cut off there, as a process that is killed.
    let cut_off = "create table third_made_up (n int); select pg_terminate_backend(pg_backend_pid());";
    let broken = "create table third_made_up (n int); select no_such_function();";
    for script in [broken, cut_off] {
        let last = ("broken", 1, script);
        assert!(bed.rowlock.migrate_with(&[FIRST, last]).await.is_err());
        assert_eq!(bed.count("select count(*) from rowlock.migration").await, before);
    }
    // Neither the step that failed nor the one before it was kept.
    let applied = bed.rowlock.migrate_with(&[FIRST]).await.unwrap();
    assert_eq!(applied, ["0002 first", "functions"]);
}

/// As if the functions had come with another build.
const OTHER_FUNCTIONS: &str = "update rowlock.migration set hash = 'another' where version = 0";

async fn functions_are_applied_again_when_their_hash_differs_and_workers_say_so(bed: &Bed) {
    bed.run(OTHER_FUNCTIONS).await;
    let refused = "the functions in the database are not those of this binary; run `rowlock migrate`";
    assert_eq!(bed.rowlock.check_schema().await.unwrap_err().to_string(), refused);
    let worker = bed.worker().handle(atomic(note)).run_until(async {}).await;
    assert_eq!(worker.unwrap_err().to_string(), refused);

    assert_eq!(bed.rowlock.migrate().await.unwrap(), ["functions"]);
    bed.rowlock.check_schema().await.unwrap();
    assert_eq!(bed.rowlock.migrate().await.unwrap(), [""; 0]);
}

async fn functions_of_a_newer_release_are_left_alone_and_work(bed: &Bed) {
    bed.run("update rowlock.migration set hash = 'newer', release = '999.0.0' where version = 0")
        .await;
    bed.rowlock.check_schema().await.unwrap();
    assert_eq!(bed.rowlock.migrate().await.unwrap(), [""; 0]);
    let left = "select count(*) from rowlock.migration where version = 0 and hash = 'newer'";
    assert_eq!(bed.count(left).await, 1);
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
}

async fn functions_may_be_applied_again_beside_running_workers(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(note)));
    let mut ids = Vec::new();
    for round in 0..10 {
        for n in 0..10 {
            ids.push(bed.note(&format!("{round} {n}")).await);
        }
        bed.run(OTHER_FUNCTIONS).await;
        assert_eq!(bed.rowlock.migrate().await.unwrap(), ["functions"]);
    }
    for id in &ids {
        until("every job to end", async || bed.job(*id).await.state == State::Finished).await;
    }
    running.stop().await;
    assert_eq!(bed.ledger().await, ids.len() as i64);
    for id in ids {
        assert_eq!(bed.ends(id).await, [Ended::Done], "job {id} took one attempt");
    }
}

mod tests {
    super::super::cases!(bare:
        eight_that_migrate_at_once_apply_each_migration_once,
        a_missing_schema_is_one_sentence_with_the_command_that_helps,
        the_printed_sql_makes_the_same_schema_as_migrate,
        a_schema_from_before_the_base_is_refused_and_left_alone,
    );
    super::super::cases!(
        a_newer_schema_that_allows_this_binary_warns_and_works,
        a_newer_schema_that_does_not_allow_this_binary_refuses_it,
        a_schema_of_another_base_is_refused_and_left_alone,
        a_migration_after_the_base_is_applied_once_in_order_and_shuts_older_binaries_out,
        a_migrate_that_fails_in_the_middle_leaves_nothing_of_itself,
        functions_are_applied_again_when_their_hash_differs_and_workers_say_so,
        functions_of_a_newer_release_are_left_alone_and_work,
        functions_may_be_applied_again_beside_running_workers,
    );
}
