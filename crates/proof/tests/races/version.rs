//! Version counters, step by step: one look allows one write, at every isolation level.

use std::{sync::Arc, time::Duration};

use proof::bed::until;
use rowlock::{
    Ended, Error, Job,
    postgres::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Notify;

use crate::steps::session::{Bed, Session};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

fn begin(level: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("begin isolation level {level}"))
}

/// Starts a transaction that has its snapshot, then goes on if the counter is where it was seen.
fn second(
    bed: &Bed,
    session: Session,
    level: &str,
    seen: i64,
) -> tokio::task::JoinHandle<(Session, rowlock::Result<i64>)> {
    let (rowlock, begin) = (bed.rowlock.clone(), begin(level));
    session.start(async move |pg| {
        let mut tx = pg.begin_with(begin).await.unwrap();
        let raised = rowlock.unchanged_version(&mut tx, "k", seen).await;
        // Ended immediately: a caller that waits behind it must not wait for the test.
        match raised {
            Ok(_) => tx.commit().await.unwrap(),
            Err(_) => tx.rollback().await.unwrap(),
        }
        raised
    })
}

async fn version(rowlock: &Rowlock, conn: &mut PgConnection) -> i64 {
    rowlock.version(conn, "k").await.unwrap()
}

/// The first raise is an insert, the later ones are updates: both wait, and both get *changed*.
async fn of_two_that_saw_the_same_version_one_goes_on_at_every_level(mut bed: Bed) {
    let mut seen = 0;
    for level in LEVELS {
        for _ in 0..2 {
            let (mut w1, w2) = (bed.session().await, bed.session().await);
            let mut tx = w1.pg.begin_with(begin(level)).await.unwrap();
            assert_eq!(
                bed.rowlock.unchanged_version(&mut tx, "k", seen).await.unwrap(),
                seen + 1
            );
            let pid = w2.pid;
            let waiting = second(&bed, w2, level, seen);
            bed.blocked(pid).await;
            tx.commit().await.unwrap();
            let told = waiting.await.unwrap().1.unwrap_err();
            match level {
                "read committed" => assert!(matches!(told, Error::Changed { .. }), "{told:?}"),
                // Its snapshot is older than the change: the database asks for another try, which will see it.
                _ => assert_eq!(
                    (told.is_retryable(), told.code().as_deref()),
                    (true, Some("40001")),
                    "{told:?}"
                ),
            }
            seen += 1;
            assert_eq!(version(&bed.rowlock, &mut bed.eye).await, seen);
            let mut again = bed.session().await;
            let mut tx = again.pg.begin_with(begin(level)).await.unwrap();
            let told = bed.rowlock.unchanged_version(&mut tx, "k", seen - 1).await.unwrap_err();
            assert!(matches!(told, Error::Changed { .. }), "{level}: {told:?}");
        }
        sqlx::raw_sql("delete from rowlock.guard_version")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        seen = 0;
    }
}

async fn if_the_first_rolls_back_the_second_goes_on_at_every_level(mut bed: Bed) {
    for (seen, level) in (0..).zip(LEVELS) {
        let (mut w1, w2) = (bed.session().await, bed.session().await);
        let mut tx = w1.pg.begin_with(begin(level)).await.unwrap();
        bed.rowlock.unchanged_version(&mut tx, "k", seen).await.unwrap();
        let pid = w2.pid;
        let waiting = second(&bed, w2, level, seen);
        bed.blocked(pid).await;
        tx.rollback().await.unwrap();
        assert_eq!(waiting.await.unwrap().1.unwrap(), seen + 1, "{level}");
    }
    assert_eq!(version(&bed.rowlock, &mut bed.eye).await, 3);
}

/// Two who ask one after the other, in opposite orders, do meet in a deadlock; one of them is asked to try again.
async fn counters_raised_in_opposite_orders_answer_try_again_at_every_level(mut bed: Bed) {
    for level in LEVELS {
        let (mut w1, w2) = (bed.session().await, bed.session().await);
        // The first is to be the one that notices and gives way.
        w1.run("set deadlock_timeout = '50ms'").await;
        let mut tx = w1.pg.begin_with(begin(level)).await.unwrap();
        bed.rowlock.raise_version(&mut tx, "a").await.unwrap();
        let (rowlock, begin, pid) = (bed.rowlock.clone(), begin(level), w2.pid);
        let other = w2.start(async move |pg| {
            sqlx::raw_sql("set deadlock_timeout = '60s'")
                .execute(&mut *pg)
                .await
                .unwrap();
            let mut tx = pg.begin_with(begin).await.unwrap();
            rowlock.raise_version(&mut tx, "b").await.unwrap();
            let raised = rowlock.raise_version(&mut tx, "a").await;
            tx.commit().await.unwrap();
            raised
        });
        bed.blocked(pid).await;
        let told = bed.rowlock.raise_version(&mut tx, "b").await.unwrap_err();
        assert_eq!(
            (told.is_retryable(), told.code().as_deref()),
            (true, Some("40P01")),
            "{level}: {told:?}"
        );
        tx.rollback().await.unwrap();
        other.await.unwrap().1.unwrap();
    }
    assert_eq!(
        bed.count("select sum(version)::bigint from rowlock.guard_version")
            .await,
        6
    );
}

/// A writer that only raises the counter makes every guard of the same key wait, by look or by counter.
async fn whoever_raises_is_waited_for_by_every_guard_of_the_key(mut bed: Bed) {
    struct Thing;
    impl rowlock::Guard<sqlx::Postgres> for Thing {
        type Seen = i64;
        fn key(&self) -> String {
            "k".into()
        }
        async fn look(&self, conn: &mut PgConnection) -> sqlx::Result<i64> {
            sqlx::query_scalar("select count(*) from public.thing")
                .fetch_one(conn)
                .await
        }
    }
    sqlx::raw_sql("create table public.thing ()")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    let (mut closer, by_look, by_counter) = (bed.session().await, bed.session().await, bed.session().await);
    let mut tx = closer.pg.begin().await.unwrap();
    assert_eq!(bed.rowlock.raise_version(&mut tx, "k").await.unwrap(), 1);
    sqlx::raw_sql("insert into public.thing default values")
        .execute(&mut *tx)
        .await
        .unwrap();

    let pids = [by_look.pid, by_counter.pid];
    let rowlock = bed.rowlock.clone();
    let by_look = by_look.start(async move |pg| {
        let mut tx = pg.begin().await.unwrap();
        let told = rowlock.unchanged(&mut tx, &Thing, &0).await;
        tx.rollback().await.unwrap();
        told
    });
    // One after the other, so that the first to wait is the first to get its answer, and lets the other go on.
    bed.blocked(pids[0]).await;
    let by_counter = second(&bed, by_counter, "read committed", 0);
    bed.blocked(pids[1]).await;
    tx.commit().await.unwrap();
    assert!(matches!(by_look.await.unwrap().1, Err(Error::Changed { .. })));
    assert!(matches!(by_counter.await.unwrap().1, Err(Error::Changed { .. })));
}

#[derive(Clone, Serialize, Deserialize, Job)]
#[job(kind = "evaluate")]
struct Evaluate;

/// Where the test and the handler wait for each other.
#[derive(Default)]
struct Meet {
    looked: Notify,
    go_on: Notify,
}

/// Looks, reads the counter after it, and returns what it saw and the answer it got.
async fn look_then_version(mut cx: Staged<Arc<Meet>>, _: Evaluate) -> Outcome {
    let meet = cx.state().clone();
    let mut read = cx.prepare().await?;
    let look = sqlx::query_scalar("select count(*) from public.thing");
    let things: i64 = look.fetch_one(&mut *read).await?;
    meet.looked.notify_one();
    meet.go_on.notified().await;
    let version = read.version("k").await?;
    read.commit().await?;
    let mut tx = cx.begin().await?;
    let changed = matches!(tx.unchanged_version("k", version).await, Err(Error::Changed { .. }));
    tx.done().result(&(things, version, changed)).ok()
}

/// A counter that was read after the look would hide a change that came between the two, if each had its own snapshot.
async fn what_prepare_reads_is_of_one_moment_so_that_no_change_is_hidden(mut bed: Bed) {
    let create = "create table public.thing ()";
    sqlx::raw_sql(create).execute(&mut bed.eye).await.unwrap();
    let mut writer = bed.session().await;
    let (meet, stop) = (Arc::new(Meet::default()), Arc::new(Notify::new()));
    let worker = Worker::new(&bed.rowlock).queue("default", 1).state(meet.clone());
    let worker = worker.handle(staged(look_then_version));
    let (counters, stopped) = (worker.counters(), stop.clone());
    let running = tokio::task::spawn_local(worker.run_until(async move { stopped.notified().await }));
    let id = bed.rowlock.enqueue_now(Evaluate).await.unwrap().id();

    meet.looked.notified().await;
    let mut tx = writer.pg.begin().await.unwrap();
    bed.rowlock.raise_version(&mut tx, "k").await.unwrap();
    let insert = "insert into public.thing default values";
    sqlx::raw_sql(insert).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    meet.go_on.notify_one();

    let done = async || (counters.settled(Ended::Done) == 1).then_some(());
    until("the job to be done", Duration::from_secs(20), done).await;
    stop.notify_one();
    running.await.unwrap().unwrap();
    let job = bed.rowlock.observe().job(id).await.unwrap().unwrap();
    // Saw nothing, at a counter that says so, and got the answer that this is over.
    assert_eq!(job.result, Some(serde_json::json!([0, 0, true])));
}

races!(
    of_two_that_saw_the_same_version_one_goes_on_at_every_level,
    if_the_first_rolls_back_the_second_goes_on_at_every_level,
    counters_raised_in_opposite_orders_answer_try_again_at_every_level,
    whoever_raises_is_waited_for_by_every_guard_of_the_key,
    what_prepare_reads_is_of_one_moment_so_that_no_change_is_hidden,
);
