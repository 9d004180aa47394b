//! Recover: what a lost worker held is counted, recorded and done by others; a hung or blocking handler costs its own
//! attempt and nothing else.

use std::{future::pending, sync::Arc, time::Duration};

use rowlock::{Ended, Fail, Job, State, atomic, staged};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::db::{Ctx, Outcome, Staged, Tx, Worker};
use super::{AT_ONCE, Bed, LEASE, Note, Other, Running, Seen, note, until, vanish, write};

const WORKER_LOST: &str = "worker lost: it stopped renewing its lease";

/// A worker that takes everything there is, and is gone with it in the middle of its writes.
async fn lose_a_worker(bed: &Bed) {
    let started = Arc::new(Notify::new());
    let entered = started.clone();
    let hang = move |cx: Ctx, job: Note, mut tx: Tx| {
        let entered = entered.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            entered.notify_one();
            pending::<()>().await;
            tx.done().ok()
        }
    };
    vanish(bed.hasty_worker().handle(atomic(hang)), async move {
        started.notified().await
    })
    .await;
}

async fn a_lost_workers_job_is_counted_recorded_and_done_once_by_the_next(bed: &Bed) {
    let id = bed.note("x").await;
    lose_a_worker(bed).await;
    let job = bed.job(id).await;
    assert_eq!(
        (job.state, job.attempt, bed.attempts(id).await.len()),
        (State::Leased, 1, 0)
    );

    let seen = Seen::default();
    let met = seen.clone();
    let handler = move |cx: Ctx, job: Note, tx: Tx| {
        met.push(format!("attempt {} recovered {}", cx.attempt(), cx.is_recovered()));
        note(cx, job, tx)
    };
    let running = Running::start(bed.hasty_worker().handle(atomic(handler)));
    until("the job to be done", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
    until("the dead worker to be forgotten", async || {
        bed.rowlock.observe().status().await.unwrap().workers.len() == 1
    })
    .await;
    let counters = running.stop().await;

    assert_eq!(seen.all(), ["attempt 2 recovered true"]);
    assert_eq!(bed.ends(id).await, [Ended::Lost, Ended::Done]);
    let lost = &bed.attempts(id).await[0];
    assert_eq!((lost.attempt, lost.error.as_deref()), (1, Some(WORKER_LOST)));
    assert_eq!(
        (bed.job(id).await.attempt, bed.ledger().await, counters.expired()),
        (2, 1, 1)
    );
}

async fn a_job_whose_last_attempt_is_lost_becomes_a_case_with_its_compensation(bed: &Bed) {
    let put = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .attempts(2)
        .if_retired(Other { n: 9 });
    let id = put.await.unwrap().id();
    bed.run("update rowlock.ready set attempt = 1").await;
    lose_a_worker(bed).await;
    let running = Running::start(bed.hasty_worker().handle(atomic(note)));
    until("the lease to end", async || running.counters.expired() == 1).await;
    running.stop().await;

    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert_eq!((case.reason.as_str(), case.attempt), (WORKER_LOST, 2));
    let last = case.history.as_array().unwrap().last().unwrap();
    assert_eq!(
        (last["outcome"].as_str(), last["error"].as_str()),
        (Some("lost"), Some(WORKER_LOST))
    );
    assert_eq!(bed.ends(id).await, [Ended::Lost]);
    let chain = bed.rowlock.observe().chain(id).await.unwrap();
    assert_eq!(
        chain.iter().map(|l| (l.kind.as_str(), l.position)).collect::<Vec<_>>(),
        [("note", 0), ("other", 1)]
    );
    assert_eq!(
        (chain[1].payload["n"].as_i64(), chain[1].state),
        (Some(9), State::Ready)
    );
    assert_eq!(bed.ledger().await, 0);
}

async fn what_a_lost_worker_had_claimed_ahead_is_recovered_too(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now((0..12).map(|_| Note::new("x")))
        .await
        .unwrap();
    lose_a_worker(bed).await;
    let held = bed.count("select count(*) from rowlock.lease").await;
    assert!(held > 8, "more than its handlers can run at once: {held}");
    bed.work(bed.hasty_worker().handle(atomic(note)), &ids).await;
    assert_eq!(
        bed.count("select count(*) from (select job from ledger group by job having count(*) = 1) x")
            .await,
        12
    );
    assert_eq!(
        bed.count("select count(*) from rowlock.outcome where outcome = 'lost'")
            .await,
        held
    );
}

/// The database says that this worker has the job, and the worker knows nothing of it.
async fn a_lease_whose_claim_reply_was_lost_is_found_and_released(bed: &Bed) {
    let running = Running::start(bed.hasty_worker().handle(atomic(note)));
    until("the worker to register", async || {
        bed.count("select count(*) from rowlock.worker").await == 1
    })
    .await;
    let id = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .after(Duration::from_secs(3600))
        .await
        .unwrap()
        .id();
    bed.run(&format!(
        "begin;
         insert into rowlock.lease
           (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
         select id, 1, (select id from rowlock.worker), 1, attempts_max, queue_no, kind_no, alone, priority, due_at
         from rowlock.ready where id = {id};
         delete from rowlock.ready where id = {id};
         commit"
    ))
    .await;
    until("the job to be done", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
    let counters = running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Released, Ended::Done]);
    assert_eq!(bed.attempts(id).await[0].error.as_deref(), Some("claim reply lost"));
    assert_eq!(
        (
            bed.job(id).await.attempt,
            counters.claim_replies_lost(),
            bed.ledger().await
        ),
        (1, 1, 1)
    );
}

/// A neighbour may have to begin again: its task can be stuck behind the blocked one, on the same thread, until the
/// database ends its idle transaction; or, on SQLite, it could not begin and was handed back.
async fn done_once_and_never_lost(bed: &Bed, ids: &[i64]) {
    for id in ids {
        let ends = bed.ends(*id).await;
        let done = ends.iter().filter(|e| **e == Ended::Done).count();
        assert!(done == 1 && !ends.contains(&Ended::Lost), "job {id}: {ends:?}");
    }
}

/// Blocks its thread for twice the lease, outside any transaction.
async fn block(cx: Staged, _: Other) -> Outcome {
    std::thread::sleep(2 * LEASE);
    cx.done().ok()
}

async fn a_handler_that_blocks_its_thread_loses_no_job_and_not_its_worker(bed: &Bed) {
    let blocking = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let mut ids = bed
        .rowlock
        .enqueue_all_now((0..10).map(|_| Note::new("x")))
        .await
        .unwrap();
    // Somebody who would declare the first one dead, if it fell silent.
    let judge = Worker::new(&bed.rowlock).queue("elsewhere", 1).lease(LEASE);
    let judge = Running::start(judge.handle(atomic(note)));
    let running = Running::start(bed.hasty_worker().handle(staged(block)).handle(atomic(note)));
    ids.push(blocking);
    for id in &ids {
        until("everything to be done", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
    }
    let (counters, judged) = (running.stop().await, judge.stop().await);

    assert_eq!(
        (counters.declared_dead(), counters.cut_off(), judged.expired()),
        (0, 0, 0)
    );
    done_once_and_never_lost(bed, &ids).await;
    assert_eq!(bed.count("select count(distinct job) from ledger").await, 10);
    assert_eq!(bed.ledger().await, 10);
}

async fn a_handler_that_blocks_inside_its_transaction_loses_no_job_and_not_its_worker(bed: &Bed) {
    let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text));
    let blocking = put("block").await.unwrap().id();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if job.text == "block" && cx.attempt() == 1 {
            std::thread::sleep(2 * LEASE);
        }
        tx.done().ok()
    };
    let running = Running::start(bed.hasty_worker().handle(atomic(handler).backoff(AT_ONCE)));
    until("it to block", async || running.counters.claimed() == 1).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        // On SQLite this waits for the transaction that blocks.
        ids.push(put("beside it").await.unwrap().id());
    }
    ids.push(blocking);
    for id in &ids {
        until("everything to be done", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
    }
    let counters = running.stop().await;
    assert_eq!(counters.declared_dead(), 0);
    done_once_and_never_lost(bed, &ids).await;
    assert_eq!(bed.count("select count(distinct job) from ledger").await, 6);
    assert_eq!(bed.ledger().await, 6);
}

/// With a lease long enough that a loaded machine's own pauses do not count as idling in a transaction.
async fn a_handler_that_blocks_its_thread_for_twice_the_lease_costs_its_neighbours_no_attempt(bed: &Bed) {
    const LONG: Duration = Duration::from_secs(6);
    let blocking = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let beside = bed
        .rowlock
        .enqueue_all_now((0..40).map(|_| Note::new("x")))
        .await
        .unwrap();
    let block = |cx: Staged, _: Other| async move {
        std::thread::sleep(2 * LONG);
        cx.done().ok()
    };
    let worker = bed.worker().lease(LONG).handle(staged(block)).handle(atomic(note));
    let all: Vec<i64> = beside.iter().copied().chain([blocking]).collect();
    let counters = bed.work(worker, &all).await;

    for id in beside {
        assert_eq!(bed.ends(id).await, [Ended::Done], "job {id}");
    }
    assert_eq!(bed.ends(blocking).await.last(), Some(&Ended::Done));
    assert_eq!(
        (counters.declared_dead(), counters.cut_off(), bed.ledger().await),
        (0, 0, 40)
    );
}

/// A kind whose handler may not take long.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(kind = "hasty", time_limit = "300ms", attempts = 2)]
struct Hasty {
    staged: bool,
}

async fn a_hung_handler_is_cut_at_its_time_limit_and_keeps_no_lock(bed: &Bed) {
    bed.run("insert into ledger (job, note) values (-1, 'free')").await;
    let id = bed.rowlock.enqueue_now(Hasty { staged: false }).await.unwrap().id();
    let hang = |cx: Ctx, _: Hasty, mut tx: Tx| async move {
        if cx.attempt() == 1 {
            sqlx::query("update ledger set note = 'mine' where job = -1")
                .execute(&mut *tx)
                .await?;
            pending::<()>().await;
        }
        tx.done().ok()
    };
    let long = rowlock::Backoff::new()
        .base(Duration::from_secs(100))
        .max(Duration::from_secs(100));
    let worker = bed.worker().handle(atomic(hang).backoff(long)).handle(atomic(note));
    let running = Running::start(worker);
    until("the attempt to be cut", async || bed.attempts(id).await.len() == 1).await;
    let mut conn = bed.conn().await;
    if !bed.database.is_sqlite() {
        sqlx::raw_sql("set lock_timeout = '100ms'")
            .execute(&mut conn)
            .await
            .unwrap();
    }
    let updated = sqlx::query("update ledger set note = 'theirs' where job = -1 and note = 'free'");
    assert_eq!(
        updated.execute(&mut conn).await.unwrap().rows_affected(),
        1,
        "the row is free, and as it was"
    );

    let next = bed.note("next").await;
    until("the worker to go on", async || {
        bed.job(next).await.state == State::Finished
    })
    .await;
    running.stop().await;
    let cut = &bed.attempts(id).await[0];
    assert_eq!(cut.outcome, Ended::Retried);
    assert_eq!(
        cut.error.as_deref(),
        Some("handler ran longer than its time limit of 300ms")
    );
    assert_eq!((bed.job(id).await.state, bed.job(id).await.attempt), (State::Ready, 1));
}

async fn a_staged_handler_that_hangs_outside_is_cut_too(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Hasty { staged: true }).await.unwrap().id();
    let hang = |cx: Staged, _: Hasty| async move {
        if cx.attempt() == 1 {
            cx.effect("call", |_| pending::<Result<(), Fail>>()).await?;
        }
        cx.done().ok()
    };
    let counters = bed
        .work(bed.worker().handle(staged(hang).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    assert_eq!((counters.settled(Ended::Retried), counters.lease_lost()), (1, 0));
}

/// A worker that has just finished one of them and its next link looks for the following one immediately, not at its
/// next look a second later.
async fn recovered_jobs_with_next_links_follow_each_other_without_a_pause(bed: &Bed) {
    const JOBS: usize = 10;
    let notes = (0..JOBS).map(|n| Note::new(&n.to_string()));
    let ids = bed.rowlock.enqueue_all_now(notes).await.unwrap();
    // Leases of a worker that is not there, as a lost one leaves them.
    bed.run("insert into rowlock.lease select id, 1, 7, 1, attempts_max, queue_no, kind_no, alone, priority, due_at from rowlock.ready")
        .await;
    bed.run("delete from rowlock.ready").await;
    bed.run("insert into rowlock.worker (id, name, lease_ms, beat, dead, started_at) select 7, 'gone', 2000, min(claimed_at), true, min(claimed_at) from rowlock.lease")
        .await;
    let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().then(Other { n: 1 }).ok() };
    let next = |_: Ctx, _: Other, tx: Tx| async move { tx.done().ok() };
    bed.work(bed.worker().handle(atomic(handler)).handle(atomic(next)), &ids)
        .await;
    let mut ends = Vec::new();
    for id in &ids {
        let attempts = bed.attempts(*id).await;
        assert_eq!(
            attempts.iter().map(|a| a.outcome).collect::<Vec<_>>(),
            [Ended::Lost, Ended::Done]
        );
        ends.push(attempts[1].ended_at);
    }
    ends.sort_unstable();
    let took = ends[JOBS - 1].duration_since(ends[0]);
    assert!(
        took.as_secs_f64() < 6.0,
        "{JOBS} jobs, of which each could wait a second, took {took}"
    );
}

mod tests {
    super::super::cases!(
        recovered_jobs_with_next_links_follow_each_other_without_a_pause,
        a_lost_workers_job_is_counted_recorded_and_done_once_by_the_next,
        a_job_whose_last_attempt_is_lost_becomes_a_case_with_its_compensation,
        what_a_lost_worker_had_claimed_ahead_is_recovered_too,
        a_lease_whose_claim_reply_was_lost_is_found_and_released,
        a_handler_that_blocks_its_thread_loses_no_job_and_not_its_worker,
        a_handler_that_blocks_its_thread_for_twice_the_lease_costs_its_neighbours_no_attempt,
        a_handler_that_blocks_inside_its_transaction_loses_no_job_and_not_its_worker,
        a_hung_handler_is_cut_at_its_time_limit_and_keeps_no_lock,
        a_staged_handler_that_hangs_outside_is_cut_too,
    );
}
