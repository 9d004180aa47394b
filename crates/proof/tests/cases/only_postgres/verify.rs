//! Verify on PostgreSQL: the catalogue's word on indexes, and history that is dropped at the same moment.

use std::time::Duration;

use rowlock::observe::{CheckState, Invariant, VerifyLimits};
use sqlx::Connection;

use super::cases::{Bed, until};

async fn an_index_that_is_not_valid_is_named(bed: &Bed) {
    let limits = VerifyLimits::new();
    bed.run("update pg_index set indisvalid = false where indexrelid = 'rowlock.ready_id'::regclass")
        .await;
    let seen = bed.rowlock.observe().verify(&limits).await.unwrap();
    let broken: Vec<_> = seen.that(CheckState::Broken).collect();
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(broken[0].invariant, Invariant::Indexes);
    assert_eq!(broken[0].breaches[0].what, "index ready_id is not valid");
}

/// Jobs of yesterday whose bodies are still there when their day of the log is dropped.
const YESTERDAY: &str = "
    do $$ declare day date := (now() at time zone 'utc')::date - 1; begin
      execute format('create table rowlock.outcome_%s partition of rowlock.outcome for values from (%L) to (%L)',
        to_char(day, 'YYYYMMDD'), day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
      insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
        select nextval('rowlock.job_id'), gen_random_uuid(), 'note', 1, 'none', 3, 3, '{}', 0, (day::text || ' 12:00+00')::timestamptz
        from generate_series(1, 100);
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
        select id, 1, 1, 1, 'done', created_at, created_at from rowlock.job;
    end $$";

async fn history_that_is_dropped_while_a_look_begins_is_not_missed(bed: &Bed) {
    bed.run(YESTERDAY).await;
    let limits = VerifyLimits::new();
    let observe = bed.rowlock.observe();
    assert!(observe.verify(&limits).await.unwrap().holds());

    let mut upkeep = bed.conn().await;
    let mut tx = upkeep.begin().await.unwrap();
    let drop = "select rowlock.drop_history(date_trunc('day', now() at time zone 'utc') at time zone 'utc')";
    let dropped: i32 = sqlx::query_scalar(drop).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(dropped, 1);
    let look = tokio::spawn(async move { observe.verify(&limits).await });
    let waits = "select count(*) from pg_locks where not granted and relation is not null";
    until("the look to wait for the log", async || bed.count(waits).await > 0).await;
    tx.commit().await.unwrap();
    let seen = tokio::time::timeout(Duration::from_secs(20), look).await.unwrap();
    let seen = seen.unwrap().unwrap();
    assert!(seen.holds(), "{seen:?}");
    let finished = seen.checks.iter().find(|c| c.invariant == Invariant::Finished).unwrap();
    assert_eq!(finished.looked, 100, "the bodies are still there");
}

mod tests {
    super::super::cases!(
        an_index_that_is_not_valid_is_named,
        history_that_is_dropped_while_a_look_begins_is_not_missed,
    );
}
