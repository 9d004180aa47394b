//! Migrate: many at once are safe, and a schema that does not fit is one sentence.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use rowlock::{Admin, Error, atomic};

use super::db::Rowlock;
use super::{Bed, note};

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
    assert_eq!(
        applied,
        [
            "0001 foundation",
            "0002 job_keys",
            "0003 ledger",
            "0004 effects",
            "0005 settings",
            "0006 guard_versions",
            "0007 body_locks",
            "0008 waiting",
            "0009 breakers",
            "0010 groups",
            "0011 operators",
            "0012 cases",
            "0013 views",
            "0014 protocol",
        ]
    );
    bed.rowlock.check_schema().await.unwrap();
    assert!(
        bed.rowlock.migrate().await.unwrap().is_empty(),
        "a second time there is nothing to do"
    );
}

const MISSING: &str = "the database has no rowlock schema, but this binary needs schema 14; run `rowlock migrate`";

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
    bed.run("insert into rowlock.migration (version, name, oldest) values (15, 'from the future', 1)")
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
        logged.contains("WARN") && logged.contains("the database has schema 15, newer than this binary's (14)"),
        "{logged}"
    );

    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
    assert!(
        bed.rowlock.migrate().await.unwrap().is_empty(),
        "an older binary changes nothing"
    );
    assert_eq!(bed.count("select count(*) from rowlock.migration").await, 15);
}

async fn a_newer_schema_that_does_not_allow_this_binary_refuses_it(bed: &Bed) {
    bed.run("insert into rowlock.migration (version, name, oldest) values (16, 'from the future', 15)")
        .await;
    let refused = "the database has schema 16, which needs binaries of schema 15 or newer, but this one is of schema \
                   14; deploy a newer binary";
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

mod tests {
    super::super::cases!(bare:
        eight_that_migrate_at_once_apply_each_migration_once,
        a_missing_schema_is_one_sentence_with_the_command_that_helps,
        the_printed_sql_makes_the_same_schema_as_migrate,
    );
    super::super::cases!(
        a_newer_schema_that_allows_this_binary_warns_and_works,
        a_newer_schema_that_does_not_allow_this_binary_refuses_it,
    );
}
