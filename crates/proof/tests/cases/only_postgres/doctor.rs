//! What the doctor finds on a server: settings, partitions, transactions that others forgot.

use rowlock::observe::Health;
use sqlx::Connection;

use super::{
    cases::{Bed, observe::doctor::finding},
    db::Rowlock,
};

async fn a_day_without_a_partition_is_told(bed: &Bed) {
    bed.run(
        "do $$ begin execute 'drop table rowlock.outcome_' || to_char((now() at time zone 'utc')::date + 1, 'YYYYMMDD'); end $$",
    )
    .await;
    let found = finding(bed, "partitions").await;
    assert_eq!(found.health, Health::Warn, "{found:?}");
    assert!(found.said.starts_with("none is made ahead"), "{found:?}");
}

async fn a_timeout_shorter_than_a_lease_is_told(bed: &Bed) {
    assert_eq!(finding(bed, "timeouts").await.health, Health::Ok);
    bed.run("do $$ begin execute format('alter database %I set statement_timeout = 9000', current_database()); end $$")
        .await;
    // Only sessions that begin after it have it.
    let rowlock = Rowlock::open(&bed.database.queue_url).unwrap();
    let findings = rowlock.observe().doctor().await.unwrap();
    let found = findings.iter().find(|finding| finding.check == "timeouts").unwrap();
    assert_eq!(found.health, Health::Warn, "{found:?}");
    assert!(found.said.starts_with("statement_timeout is 9000 ms"), "{found:?}");
    assert!(
        found
            .mend
            .as_deref()
            .unwrap_or_default()
            .contains("statement_timeout = 0"),
        "{found:?}"
    );
}

async fn who_has_a_transaction_open_is_named(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    // One that has written nothing keeps nothing from being removed.
    let (pid, _): (i32, i64) = sqlx::query_as("select pg_backend_pid(), txid_current()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let found = finding(bed, "oldest transaction").await;
    assert!(
        found.said.starts_with("open for ") && found.said.ends_with(&format!("(pid {pid})")),
        "{found:?}"
    );
    tx.rollback().await.unwrap();
    let found = finding(bed, "oldest transaction").await;
    assert!(!found.said.contains(&format!("(pid {pid})")), "{found:?}");
}

mod tests {
    super::super::cases!(
        a_day_without_a_partition_is_told,
        a_timeout_shorter_than_a_lease_is_told,
        who_has_a_transaction_open_is_named,
    );
}
