//! Partitions made and dropped beside work in flight: upkeep must neither collide with itself nor hold anybody up.

use std::time::{Duration, Instant};

use crate::steps::{APPLIED, claim, done, enqueue, partitions, register, session::Bed};

/// Far above what upkeep may wait for a lock, far below any lease's lock timeout that would end a longer wait.
const SOON: Duration = Duration::from_secs(3);

async fn drop_tomorrows(bed: &mut Bed) -> i64 {
    let tomorrows = "do $$ declare part text; begin
        for part in select c.relname from pg_class c join pg_inherits i on i.inhrelid = c.oid
            where i.inhparent = 'rowlock.outcome'::regclass and c.relkind = 'r'
              and c.relname > 'outcome_' || to_char(clock_timestamp() at time zone 'utc', 'YYYYMMDD')
              and c.relname ~ '^outcome_[0-9]+$'
        loop execute 'drop table rowlock.' || part; end loop;
    end $$";
    sqlx::raw_sql(tomorrows).execute(&mut bed.eye).await.unwrap();
    parts(bed).await
}

async fn parts(bed: &mut Bed) -> i64 {
    bed.count("select count(*) from pg_inherits where inhparent = 'rowlock.outcome'::regclass")
        .await
}

async fn two_sessions_that_make_partitions_at_once_make_each_once(mut bed: Bed) {
    let before = drop_tomorrows(&mut bed).await;
    let mut first = bed.session().await;
    first.begin().await;
    assert_eq!(partitions(&mut first.pg).await.unwrap(), 7);

    let second = bed.session().await;
    let pid = second.pid;
    let making = second.start(async |pg| partitions(pg).await);
    bed.blocked(pid).await;
    first.commit().await;

    assert_eq!(making.await.unwrap().1.unwrap(), 0, "the second finds them made");
    assert_eq!(parts(&mut bed).await, before + 7);
}

async fn making_partitions_waits_for_no_transaction_that_enqueued_or_settled(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    drop_tomorrows(&mut bed).await;
    let mut users = bed.session().await;
    users.begin().await;
    enqueue(&mut users.pg, 1, 3).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    handler
        .run("insert into rowlock.outcome select 1, 1, 1, 1, 'done', clock_timestamp(), clock_timestamp()")
        .await;

    let mut upkeep = bed.session().await;
    assert_eq!(partitions(&mut upkeep.pg).await.unwrap(), 7);

    assert_eq!(done(&mut handler.pg, held).await, APPLIED);
    users.commit().await;
    handler.commit().await;
}

async fn upkeep_gives_way_to_a_dump_and_holds_nobody_up(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    drop_tomorrows(&mut bed).await;
    let mut dump = bed.session().await;
    dump.begin().await;
    // What pg_dump holds, for hours.
    dump.run("lock table rowlock.job, rowlock.outcome in access share mode")
        .await;

    let upkeep = bed.session().await;
    let making = upkeep.start(async |pg| {
        let start = Instant::now();
        let made = partitions(pg).await;
        let far = sqlx::query_scalar::<_, i32>("select rowlock.drop_history(clock_timestamp() + interval '30 days')");
        let dropped = far.fetch_one(pg).await;
        (made.unwrap(), dropped.unwrap(), start.elapsed())
    });
    let start = Instant::now();
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(done(&mut bed.eye, held).await, APPLIED);
    let worked_for = start.elapsed();

    let (mut session, (made, dropped, upkeep_took)) = making.await.unwrap();
    assert_eq!((made, dropped), (0, 0), "upkeep gives way");
    assert!(
        upkeep_took < SOON && worked_for < SOON,
        "upkeep took {upkeep_took:?}, a claim and settle {worked_for:?}"
    );
    let patience: String = sqlx::query_scalar("show lock_timeout")
        .fetch_one(&mut session.pg)
        .await
        .unwrap();
    assert_eq!(patience, "30s", "the caller's own setting is back");
    dump.rollback().await;
    assert_eq!(
        partitions(&mut session.pg).await.unwrap(),
        7,
        "the next round makes them"
    );
}

async fn rows_that_came_before_their_partition_do_not_stop_the_next_ones(mut bed: Bed) {
    let before = drop_tomorrows(&mut bed).await;
    let ahead = "insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
        select 1, 1, 1, 1, 'done', clock_timestamp(), clock_timestamp() + interval '1 day'";
    sqlx::raw_sql(ahead).execute(&mut bed.eye).await.unwrap();

    assert_eq!(
        partitions(&mut bed.eye).await.unwrap(),
        6,
        "all but the day whose rows are in the default one"
    );
    assert_eq!(parts(&mut bed).await, before + 6);
    assert_eq!(bed.outcomes(1).await, ["done"]);
}

races!(
    two_sessions_that_make_partitions_at_once_make_each_once,
    making_partitions_waits_for_no_transaction_that_enqueued_or_settled,
    upkeep_gives_way_to_a_dump_and_holds_nobody_up,
    rows_that_came_before_their_partition_do_not_stop_the_next_ones,
);
