//! Two or three transactions and one key: the second one waits, reads what is committed then, and returns that.

use std::time::Duration;

use jiff::Timestamp;
use proof::bed::until;
use rowlock::{
    Ended, Enqueued, Error, Hold, Job, JobOptions, Result, State,
    key::Existing,
    postgres::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::steps::{
    session::{Bed, Session},
    sql,
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "tick")]
struct Tick {
    n: i64,
}

const KEY: &str = "tick";

async fn put(rowlock: &Rowlock, pg: &mut PgConnection, n: i64) -> Result<Enqueued> {
    rowlock.enqueue(pg, Tick { n }).key(KEY).await
}

/// The same with a hold that ends with the job.
async fn put_open(rowlock: &Rowlock, pg: &mut PgConnection, n: i64) -> Result<Enqueued> {
    rowlock.enqueue(pg, Tick { n }).key(KEY).hold(Hold::WhileOpen).await
}

fn new(said: &Result<Enqueued>) -> i64 {
    match said {
        Ok(Enqueued::New(id)) => *id,
        other => panic!("not new: {other:?}"),
    }
}

fn existing(said: &Result<Enqueued>) -> &Existing {
    match said {
        Ok(Enqueued::Existing(existing)) => existing,
        other => panic!("not existing: {other:?}"),
    }
}

fn is_conflict(said: &Result<Enqueued>) -> bool {
    matches!(said, Err(Error::KeyConflict { .. }))
}

fn try_again(said: &Result<Enqueued>) -> Option<String> {
    match said {
        Err(error @ Error::TryAgain { .. }) => error.code(),
        other => panic!("not retryable: {other:?}"),
    }
}

/// A session that has begun to enqueue and waits, by the server's word.
async fn waiting(bed: &mut Bed, session: Session, n: i64) -> JoinHandle<(Session, Result<Enqueued>)> {
    let (pid, rowlock) = (session.pid, bed.rowlock.clone());
    let step = session.start(async move |pg| put(&rowlock, pg, n).await);
    bed.blocked(pid).await;
    step
}

/// How many jobs and keys there are.
async fn made(bed: &mut Bed) -> (i64, i64) {
    (
        bed.count("select count(*) from rowlock.job").await,
        bed.count("select count(*) from rowlock.job_key").await,
    )
}

/// A key whose hold ended with its job; the job's id.
async fn ended(bed: &mut Bed) -> i64 {
    let rowlock = bed.rowlock.clone();
    let id = put_open(&rowlock, &mut bed.eye, 0).await.unwrap().id();
    sqlx::raw_sql("delete from rowlock.ready")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    id
}

/// Two open transactions with one key; the first ends like this, and that is what the second gets.
async fn second_behind(bed: &mut Bed, n: i64, end: impl AsyncFnOnce(&mut Session)) -> (i64, Result<Enqueued>) {
    let mut first = bed.session().await;
    first.begin().await;
    let id = new(&put(&bed.rowlock.clone(), &mut first.pg, 1).await);
    let mut second = bed.session().await;
    second.begin().await;
    let asking = waiting(bed, second, n).await;
    end(&mut first).await;
    let (mut second, said) = asking.await.unwrap();
    // Whatever it got, its transaction is good.
    second.run("select 1").await;
    second.commit().await;
    (id, said)
}

async fn a_second_transaction_waits_for_the_first_and_gets_its_job(mut bed: Bed) {
    let (id, said) = second_behind(&mut bed, 1, Session::commit).await;
    let told = existing(&said);
    assert_eq!((told.id, told.state), (id, Some(State::Ready)));
    assert_eq!(made(&mut bed).await, (1, 1));
}

async fn a_second_transaction_waits_for_the_first_and_is_new_after_its_rollback(mut bed: Bed) {
    let (id, said) = second_behind(&mut bed, 1, Session::rollback).await;
    assert_ne!(new(&said), id);
    assert_eq!(made(&mut bed).await, (1, 1));
}

async fn another_request_waits_for_the_first_before_it_is_refused(mut bed: Bed) {
    let (_, said) = second_behind(&mut bed, 2, Session::commit).await;
    assert!(is_conflict(&said), "{said:?}");
    assert_eq!(made(&mut bed).await, (1, 1));
}

async fn another_request_is_new_when_the_first_rolls_back(mut bed: Bed) {
    let (_, said) = second_behind(&mut bed, 2, Session::rollback).await;
    new(&said);
    assert_eq!(made(&mut bed).await, (1, 1));
}

/// Both have read that the hold is over before either could take the key: the row is locked by somebody else.
async fn of_two_that_take_over_an_ended_hold_one_wins(mut bed: Bed) {
    let before = ended(&mut bed).await;
    let mut lock = bed.session().await;
    lock.begin().await;
    lock.run("select from rowlock.job_key for update").await;
    let mut steps = Vec::new();
    for _ in 0..2 {
        let session = bed.session().await;
        steps.push(waiting(&mut bed, session, 1).await);
    }
    lock.commit().await;

    let mut ids = Vec::new();
    let mut won = 0;
    for step in steps {
        let said = step.await.unwrap().1.unwrap();
        won += usize::from(said.is_new());
        ids.push(said.id());
    }
    assert_eq!((won, ids[0] == ids[1], ids[0] != before), (1, true, true), "{ids:?}");
    assert_eq!(made(&mut bed).await, (2, 1));
}

async fn who_comes_behind_an_open_takeover_waits_for_its_end(mut bed: Bed) {
    for commit in [false, true] {
        sqlx::raw_sql("delete from rowlock.job_key")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        let before = ended(&mut bed).await;
        let mut first = bed.session().await;
        first.begin().await;
        let taken = new(&put(&bed.rowlock.clone(), &mut first.pg, 1).await);
        let second = bed.session().await;
        let asking = waiting(&mut bed, second, 1).await;
        if commit {
            first.commit().await;
        } else {
            first.rollback().await;
        }
        let said = asking.await.unwrap().1;
        if commit {
            assert_eq!(existing(&said).id, taken);
        } else {
            let id = new(&said);
            assert!(id != taken && id != before);
        }
    }
}

/// The first statement finds the key held, and waits in front of the second one: a table that only this one reads is
/// locked. Meanwhile the key goes.
async fn a_key_that_retention_removes_between_the_two_statements_is_won(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    let before = new(&put(&rowlock, &mut bed.eye, 1).await);
    let mut lock = bed.session().await;
    lock.begin().await;
    lock.run("lock table rowlock.case_file in access exclusive mode").await;
    let session = bed.session().await;
    let asking = waiting(&mut bed, session, 2).await;
    lock.run("delete from rowlock.job_key").await;
    lock.commit().await;

    let said = asking.await.unwrap().1;
    assert_ne!(new(&said), before);
    assert_eq!(made(&mut bed).await, (2, 1));
}

/// Without the sorting this is a deadlock: each has the other's key and waits in the middle for a third transaction.
async fn several_keys_given_in_opposite_order_wait_in_one_order(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    let mut middle = bed.session().await;
    middle.begin().await;
    let held = rowlock.enqueue(&mut middle.pg, Tick { n: 2 }).key("2").await;
    new(&held);

    let mut steps = Vec::new();
    for order in [[1, 2, 3], [3, 2, 1]] {
        let (session, rowlock) = (bed.session().await, bed.rowlock.clone());
        let pid = session.pid;
        steps.push(session.start(async move |pg| {
            let all = rowlock.enqueue_all(pg, order.map(|n| Tick { n }));
            all.key_by(|job| job.n.to_string()).await
        }));
        bed.blocked(pid).await;
    }
    middle.rollback().await;
    let first = steps.remove(0).await.unwrap().1.unwrap();
    let second = steps.remove(0).await.unwrap().1.unwrap();
    assert!(first.iter().all(Enqueued::is_new), "{first:?}");
    let mut again: Vec<i64> = second.iter().map(|put| existing(&Ok(put.clone())).id).collect();
    again.reverse();
    assert_eq!(again, first.iter().map(Enqueued::id).collect::<Vec<_>>());
    assert_eq!(made(&mut bed).await, (3, 3));
}

/// The sweep's second statement, for a key that its first one saw with this job.
async fn sweep(pg: &mut PgConnection, id: i64) -> u64 {
    let now = Some(jiff_sqlx::ToSqlx::to_sqlx(Timestamp::now()));
    let swept = sqlx::query(sql!("key/sweep"))
        .bind(vec![KEY])
        .bind(vec![id])
        .bind(now)
        .bind(now);
    swept.execute(pg).await.unwrap().rows_affected()
}

/// The sweep saw the key of a finished job; when it comes to remove it, the key is another job's.
async fn a_sweep_does_not_remove_a_key_that_was_taken_over_meanwhile(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    let before = ended(&mut bed).await;
    let taken = new(&put_open(&rowlock, &mut bed.eye, 1).await);
    // Even one whose own job is finished: what was read of it is not true any more.
    sqlx::raw_sql("delete from rowlock.ready")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    assert_eq!(sweep(&mut bed.eye, before).await, 0);
    assert_eq!(bed.count("select id from rowlock.job_key").await, taken);
    assert_eq!(sweep(&mut bed.eye, taken).await, 1);
}

async fn a_sweep_skips_a_key_that_is_about_to_be_taken_over(mut bed: Bed) {
    let before = ended(&mut bed).await;
    let mut taking = bed.session().await;
    taking.begin().await;
    let taken = new(&put(&bed.rowlock.clone(), &mut taking.pg, 1).await);
    // It would hang here if the sweep waited.
    assert_eq!(sweep(&mut bed.eye, before).await, 0);
    taking.commit().await;
    assert_eq!(bed.count("select id from rowlock.job_key").await, taken);
}

/// An enqueue that has read that the hold is over finds the row gone, and takes the key anew.
async fn a_key_swept_in_front_of_its_takeover_is_won(mut bed: Bed) {
    let before = ended(&mut bed).await;
    let mut sweeping = bed.session().await;
    sweeping.begin().await;
    sweeping.run("select from rowlock.job_key for update").await;
    let session = bed.session().await;
    let asking = waiting(&mut bed, session, 1).await;
    assert_eq!(sweep(&mut sweeping.pg, before).await, 1);
    sweeping.commit().await;
    assert_ne!(new(&asking.await.unwrap().1), before);
    assert_eq!(made(&mut bed).await, (2, 1));
}

const STRICTER: [&str; 2] = [
    "begin isolation level repeatable read",
    "begin isolation level serializable",
];

/// A transaction of a stricter level whose snapshot is taken.
async fn strict(bed: &Bed, begin: &'static str) -> Session {
    let mut session = bed.session().await;
    session.run(begin).await;
    session.run("select count(*) from rowlock.job").await;
    session
}

async fn anew(bed: &mut Bed) {
    let clean = "delete from rowlock.job_key; delete from rowlock.ready; delete from rowlock.job";
    sqlx::raw_sql(clean).execute(&mut bed.eye).await.unwrap();
}

async fn a_key_in_a_stricter_transaction_is_new_existing_or_asks_to_try_again(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    for begin in STRICTER {
        anew(&mut bed).await;
        let mut alone = strict(&bed, begin).await;
        let id = new(&put(&rowlock, &mut alone.pg, 1).await);
        assert_eq!(existing(&put(&rowlock, &mut alone.pg, 1).await).id, id, "{begin}");
        assert!(is_conflict(&put(&rowlock, &mut alone.pg, 2).await), "{begin}");
        alone.commit().await;
        let mut later = strict(&bed, begin).await;
        assert_eq!(existing(&put(&rowlock, &mut later.pg, 1).await).id, id, "{begin}");
        later.commit().await;

        // Taken after the snapshot: what the transaction could read of it is nothing, so it must run again.
        anew(&mut bed).await;
        let mut stale = strict(&bed, begin).await;
        let id = new(&put(&rowlock, &mut bed.eye, 1).await);
        let said = put(&rowlock, &mut stale.pg, 1).await;
        assert_eq!(try_again(&said).as_deref(), Some("40001"), "{begin}");
        stale.rollback().await;
        stale.run(begin).await;
        assert_eq!(existing(&put(&rowlock, &mut stale.pg, 1).await).id, id, "{begin}");
        stale.commit().await;
        assert_eq!(made(&mut bed).await, (1, 1), "{begin}");
    }
}

async fn a_stricter_transaction_that_waited_for_a_twin_asks_to_try_again(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    for begin in STRICTER {
        for commit in [true, false] {
            anew(&mut bed).await;
            let mut first = bed.session().await;
            first.begin().await;
            new(&put(&rowlock, &mut first.pg, 1).await);
            let second = strict(&bed, begin).await;
            let asking = waiting(&mut bed, second, 1).await;
            if commit {
                first.commit().await;
            } else {
                first.rollback().await;
            }
            let (mut second, said) = asking.await.unwrap();
            if commit {
                assert_eq!(try_again(&said).as_deref(), Some("40001"), "{begin}");
                second.rollback().await;
            } else {
                new(&said);
                second.commit().await;
            }
            assert_eq!(made(&mut bed).await, (1, 1), "{begin}");
        }
    }
}

async fn a_stricter_transaction_does_not_take_over_what_changed_since_its_snapshot(mut bed: Bed) {
    let rowlock = bed.rowlock.clone();
    for begin in STRICTER {
        anew(&mut bed).await;
        ended(&mut bed).await;
        let mut stale = strict(&bed, begin).await;
        let taken = new(&put_open(&rowlock, &mut bed.eye, 1).await);
        assert_eq!(
            try_again(&put(&rowlock, &mut stale.pg, 2).await).as_deref(),
            Some("40001")
        );
        stale.rollback().await;
        assert_eq!(bed.count("select id from rowlock.job_key").await, taken);
    }
}

async fn a_lock_time_out_while_waiting_for_a_twin_asks_to_try_again(bed: Bed) {
    let rowlock = bed.rowlock.clone();
    let mut first = bed.session().await;
    first.begin().await;
    new(&put(&rowlock, &mut first.pg, 1).await);
    let mut second = bed.session().await;
    second.begin().await;
    second.run("set local lock_timeout = '50ms'").await;
    assert_eq!(
        try_again(&put(&rowlock, &mut second.pg, 1).await).as_deref(),
        Some("55P03")
    );
}

/// A next link waits for somebody's open transaction; what else the engine has to settle does not.
async fn a_next_link_that_waits_for_a_key_holds_up_no_other(mut bed: Bed) {
    async fn tick(cx: Staged, job: Tick) -> Outcome {
        match job.n {
            0 => cx.done().then_with(Tick { n: 100 }, JobOptions::new().key(KEY)).ok(),
            _ => cx.done().ok(),
        }
    }
    let rowlock = bed.rowlock.clone();
    let mut open = bed.session().await;
    open.begin().await;
    new(&put(&rowlock, &mut open.pg, 100).await);
    let ticks = rowlock.enqueue_all_now((0..20).map(|n| Tick { n })).await.unwrap();
    let worker = Worker::new(&rowlock)
        .queue("default", 20)
        .handle(staged(tick))
        .lease(Duration::from_secs(2));
    let (stop, counters) = (CancellationToken::new(), worker.counters());
    let stopped = stop.clone();
    let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
    let done = async |jobs: u64| {
        let enough = async || (counters.settled(Ended::Done) >= jobs).then_some(());
        until("the others to be done", Duration::from_secs(20), enough).await;
    };
    done(19).await;
    assert_eq!(bed.places(ticks[0]).await, [0, 1, 0], "it waits, leased");
    open.rollback().await;
    // The waiting one, and the link that it makes now.
    done(21).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(rowlock.observe().chain(ticks[0]).await.unwrap().len(), 2);
    assert_eq!(counters.settled(Ended::Done), 21);
}

races!(
    a_second_transaction_waits_for_the_first_and_gets_its_job,
    a_second_transaction_waits_for_the_first_and_is_new_after_its_rollback,
    another_request_waits_for_the_first_before_it_is_refused,
    another_request_is_new_when_the_first_rolls_back,
    of_two_that_take_over_an_ended_hold_one_wins,
    who_comes_behind_an_open_takeover_waits_for_its_end,
    a_key_that_retention_removes_between_the_two_statements_is_won,
    several_keys_given_in_opposite_order_wait_in_one_order,
    a_sweep_does_not_remove_a_key_that_was_taken_over_meanwhile,
    a_sweep_skips_a_key_that_is_about_to_be_taken_over,
    a_key_swept_in_front_of_its_takeover_is_won,
    a_key_in_a_stricter_transaction_is_new_existing_or_asks_to_try_again,
    a_stricter_transaction_that_waited_for_a_twin_asks_to_try_again,
    a_stricter_transaction_does_not_take_over_what_changed_since_its_snapshot,
    a_lock_time_out_while_waiting_for_a_twin_asks_to_try_again,
    a_next_link_that_waits_for_a_key_holds_up_no_other,
);
