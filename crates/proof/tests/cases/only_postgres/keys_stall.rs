//! Keys that wait for an open transaction, which only PostgreSQL lets stand beside others: they hold up no other work.

use std::time::Duration;

use rowlock::{BegunByHand, Ended, Error, Job, JobOptions, State, atomic, staged};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::task::JoinSet;

use super::{
    cases::{Bed, Note, Other, Running, until},
    db::{Conn, Ctx, Outcome, Staged, Tx, Worker},
};

/// Has nothing to do with any key.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "aside")]
struct Aside {}

/// Shorter than the time that a statement waits for a lock under the default lease.
const SOON: Duration = Duration::from_secs(8);

/// Engine connections of this database that wait for a lock.
async fn waiting(bed: &Bed) -> i64 {
    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
        and application_name like '%engine' and wait_event_type = 'Lock'";
    bed.count(waiting).await
}

async fn aside_is_done_soon(bed: &Bed, conn: &mut Conn) {
    let id = bed
        .rowlock
        .enqueue(&mut BegunByHand::new(conn), Aside {})
        .await
        .unwrap()
        .id();
    let ended = "select count(*) from rowlock.outcome where outcome = 'done' and id = ";
    proof::bed::until("an unrelated job to be done", SOON, async || {
        (bed.count(&format!("{ended}{id}")).await == 1).then_some(())
    })
    .await;
}

async fn aside(_: Ctx, _: Aside, tx: Tx) -> Outcome {
    tx.done().ok()
}

async fn next_links_that_wait_for_an_open_twin_hold_up_no_other_job(bed: &Bed) {
    let then_keyed = |cx: Staged, job: Note| async move {
        let options = JobOptions::new().key(&job.text);
        cx.done().then_with(Other { n: 1 }, options).ok()
    };
    let worker = Worker::new(&bed.rowlock)
        .queue("default", 20)
        .grace(Duration::from_secs(5));
    let running = Running::start(worker.handle(staged(then_keyed)).handle(atomic(aside)));
    let (mut conn, mut own) = (bed.conn().await, bed.conn().await);
    for (key, commit) in [("committed", true), ("rolled back", false)] {
        let mut open = conn.begin().await.unwrap();
        let first = bed.rowlock.enqueue(&mut open, Other { n: 1 }).key(key).await;
        assert!(first.unwrap().is_new());
        let notes = (0..8).map(|_| Note::new(key));
        let ids = bed.rowlock.enqueue_all_now(notes).await.unwrap();
        until("a next link to wait", async || waiting(bed).await > 0).await;
        for _ in 0..3 {
            aside_is_done_soon(bed, &mut own).await;
            let waiting = waiting(bed).await;
            assert!(waiting <= 2, "{waiting} connections wait");
        }
        for id in &ids {
            assert_eq!(bed.job(*id).await.state, State::Leased, "decided before the twin is");
        }
        match commit {
            true => open.commit().await.unwrap(),
            false => open.rollback().await.unwrap(),
        }
        for id in &ids {
            until("every job to be done", async || bed.ends(*id).await == [Ended::Done]).await;
        }
        let held = format!("select count(*) from rowlock.job_key where key = '{key}'");
        assert_eq!(bed.count(&held).await, 1);
    }
    let links = "select count(*) from rowlock.job where kind = 'other'";
    assert_eq!(bed.count(links).await, 2, "one job per key");
    running.stop().await;
}

async fn enqueues_that_wait_for_an_open_twin_hold_up_no_other_job(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(aside)));
    let (mut conn, mut own) = (bed.conn().await, bed.conn().await);
    let mut open = conn.begin().await.unwrap();
    let first = bed.rowlock.enqueue(&mut open, Other { n: 1 }).key("k").await.unwrap();
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let rowlock = bed.rowlock.clone();
        asking.spawn(async move {
            loop {
                match rowlock.enqueue_now(Other { n: 1 }).key("k").await {
                    Ok(put) => return put,
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            }
        });
    }
    until("an enqueue to wait", async || waiting(bed).await > 0).await;
    for _ in 0..3 {
        aside_is_done_soon(bed, &mut own).await;
        let waiting = waiting(bed).await;
        assert!(waiting <= 2, "{waiting} connections wait");
    }
    let told = bed.rowlock.enqueue_now(Other { n: 1 }).key("k").await;
    assert!(matches!(told, Err(Error::TryAgain { .. })), "{told:?}");
    open.commit().await.unwrap();
    for put in asking.join_all().await {
        assert_eq!((put.is_new(), put.id()), (false, first.id()));
    }
    running.stop().await;
}

mod tests {
    super::super::cases!(
        next_links_that_wait_for_an_open_twin_hold_up_no_other_job,
        enqueues_that_wait_for_an_open_twin_hold_up_no_other_job,
    );
}
