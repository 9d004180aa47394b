//! Batches: jobs that share a commit, and fail alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rowlock::{AlreadyHandled, Batch, Ended, Fail, Job, JobOptions, State, atomic};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

use super::db::{Conn, Ctx, Outcome, Tx, Worker};
use super::{AT_ONCE, Bed, LEASE, Note, Other, Running, Seen, fail, until, write};

/// As long as the default lease allows: on a busy machine a batch is to be as large as the case means it to be.
pub(crate) fn batch(jobs: usize) -> Batch {
    Batch::up_to(jobs).within(Duration::from_millis(1500))
}

/// One slot, so that whatever is waiting goes into one batch.
pub(crate) fn worker(bed: &Bed) -> Worker {
    Worker::new(&bed.rowlock)
        .queue("default", 1)
        .prefetch(50)
        .grace(Duration::from_secs(5))
}

pub(crate) async fn enqueue<const N: usize>(bed: &Bed, texts: [&str; N]) -> Vec<i64> {
    bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap()
}

pub(crate) async fn rows(bed: &Bed, id: i64) -> i64 {
    bed.count(&format!("select count(*) from ledger where job = {id}"))
        .await
}

/// Its end, and how often its effect is there.
pub(crate) async fn ended(bed: &Bed, id: i64) -> (Vec<Ended>, i64) {
    (bed.ends(id).await, rows(bed, id).await)
}

/// Notes how many rows of the ledger its own transaction sees, and how many are committed, then writes one.
pub(crate) async fn look(seen: &Seen, url: &str, cx: &Ctx, tx: &mut Tx) -> Result<(), Fail> {
    let count = "select count(*) from ledger";
    let inside: i64 = sqlx::query_scalar(count).fetch_one(&mut **tx).await?;
    let outside: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut Conn::connect(url).await?)
        .await?;
    seen.push(format!("{inside} of which {outside} committed"));
    write(tx, cx.id(), "looked").await?;
    Ok(())
}

async fn jobs_of_a_batch_share_one_commit(bed: &Bed) {
    let ids = enqueue(bed, ["a"; 5]).await;
    let seen = Seen::default();
    let (kept, url) = (seen.clone(), bed.database.url.clone());
    let handler = move |cx: Ctx, _: Note, mut tx: Tx| {
        let (seen, url) = (kept.clone(), url.clone());
        async move {
            look(&seen, &url, &cx, &mut tx).await?;
            tx.done().ok()
        }
    };
    let counters = bed
        .work(worker(bed).handle(atomic(handler).batch(batch(3))), &ids)
        .await;
    let wanted = [
        "0 of which 0 committed",
        "1 of which 0 committed",
        "2 of which 0 committed",
        "3 of which 3 committed",
        "4 of which 3 committed",
    ];
    assert_eq!(seen.all(), wanted);
    assert_eq!((counters.settled(Ended::Done), counters.batches_undone()), (5, 0));
    for id in ids {
        assert_eq!(ended(bed, id).await, (vec![Ended::Done], 1));
    }
}

/// Writes, then ends in the way that its text says, on its first attempt.
pub(crate) async fn as_told(cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    if cx.epoch() > 1 {
        return tx.done().ok();
    }
    match job.text.as_str() {
        "fail" => fail("on purpose"),
        "panic" => panic!("on purpose"),
        "retire" => fail(Fail::retire("on purpose")),
        "defer" => fail(Fail::defer(Duration::ZERO)),
        "cancel" => fail(Fail::cancel("on purpose")),
        "already" => fail(AlreadyHandled),
        "error" => {
            let null = sqlx::query("insert into ledger (job, note) values (1, null)");
            null.execute(&mut *tx).await?;
            tx.done().ok()
        }
        _ => tx.done().ok(),
    }
}

/// Ways to end, how each is recorded, and how often its effect is there in the end.
pub(crate) fn told() -> [(&'static str, Vec<Ended>, i64); 10] {
    use Ended::{Cancelled, Deferred, Done, Retired, Retried};
    [
        ("done", vec![Done], 1),
        ("fail", vec![Retried, Done], 1),
        ("done", vec![Done], 1),
        ("panic", vec![Retried, Done], 1),
        ("retire", vec![Retired], 0),
        ("defer", vec![Deferred, Done], 1),
        ("cancel", vec![Cancelled], 0),
        ("already", vec![Done], 0),
        ("error", vec![Retried, Done], 1),
        ("done", vec![Done], 1),
    ]
}

async fn a_job_that_fails_in_a_batch_fails_alone(bed: &Bed) {
    let told = told();
    let ids = enqueue(bed, told.clone().map(|(text, ..)| text)).await;
    let worker = worker(bed).handle(atomic(as_told).batch(batch(10)).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    for (id, (text, ends, rows)) in ids.iter().zip(told) {
        assert_eq!(ended(bed, *id).await, (ends, rows), "{text}");
    }
    assert_eq!((counters.already_handled(), counters.batches_undone()), (1, 0));
    let error = bed.attempts(ids[3]).await[0].error.clone();
    assert_eq!(error.as_deref(), Some("handler panicked: on purpose"));
}

async fn the_last_of_a_batch_may_fail(bed: &Bed) {
    let ids = enqueue(bed, ["done", "done", "retire"]).await;
    let counters = bed
        .work(worker(bed).handle(atomic(as_told).batch(batch(3))), &ids)
        .await;
    for (id, end) in ids
        .iter()
        .zip([(Ended::Done, 1), (Ended::Done, 1), (Ended::Retired, 0)])
    {
        assert_eq!(ended(bed, *id).await, (vec![end.0], end.1));
    }
    assert_eq!(counters.batches_undone(), 0);
}

/// On PostgreSQL it fails the transaction, as it would for a single job.
async fn an_error_that_is_swallowed_spoils_no_neighbour(bed: &Bed) {
    let ids = enqueue(bed, ["a", "swallow", "b"]).await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if job.text == "swallow" && cx.attempt() == 1 {
            let null = sqlx::query("insert into ledger (job, note) values (1, null)");
            let _ = null.execute(&mut *tx).await;
        }
        tx.done().ok()
    };
    let worker = worker(bed).handle(atomic(handler).batch(batch(10)).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    let swallowed = match bed.database.is_sqlite() {
        true => vec![Ended::Done],
        false => vec![Ended::Retried, Ended::Done],
    };
    assert_eq!(ended(bed, ids[0]).await, (vec![Ended::Done], 1));
    assert_eq!(ended(bed, ids[1]).await, (swallowed, 1));
    assert_eq!(ended(bed, ids[2]).await, (vec![Ended::Done], 1));
    assert_eq!(counters.batches_undone(), 0);
}

async fn nested_transactions_stay_inside_their_job(bed: &Bed) {
    let ids = enqueue(bed, ["commit", "roll back", "forget", "commit and fail", "commit"]).await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "outer").await?;
        let mut inner = tx.begin().await?;
        let insert = sqlx::query("insert into ledger (job, note) values ($1, 'inner')");
        insert.bind(cx.id()).execute(&mut *inner).await?;
        match job.text.as_str() {
            "roll back" => inner.rollback().await?,
            "forget" => drop(inner),
            _ => inner.commit().await?,
        }
        match job.text.ends_with("fail") {
            true => fail(Fail::retire("on purpose")),
            false => tx.done().ok(),
        }
    };
    let counters = bed
        .work(worker(bed).handle(atomic(handler).batch(batch(10))), &ids)
        .await;
    for (id, wanted) in ids.iter().zip([2, 1, 1, 0, 2]) {
        assert_eq!(rows(bed, *id).await, wanted, "{}", bed.job(*id).await.payload);
    }
    assert_eq!(counters.batches_undone(), 0);
}

/// Ends the transaction by hand, which is not only its own.
async fn ends_it(cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    let Some((how, then)) = job.text.split_once(", then ") else {
        return tx.done().ok();
    };
    let how = match how {
        "commit" => "commit",
        "commit and begin" => "commit; begin",
        _ => "rollback",
    };
    let ended = sqlx::raw_sql(how).execute(&mut *tx).await;
    match then {
        "done" => tx.done().ok(),
        "panic" => panic!("after its own end"),
        _ => {
            ended?;
            fail("after its own end")
        }
    }
}

async fn a_transaction_ended_by_hand_keeps_nothing_of_its_neighbours(bed: &Bed) {
    for text in [
        "commit, then done",
        "commit, then fail",
        "commit, then panic",
        "commit and begin, then done",
        "rollback, then done",
        "rollback, then panic",
    ] {
        let ids = enqueue(bed, ["a", "b", text, "c"]).await;
        let worker = worker(bed).handle(atomic(ends_it).batch(batch(10)).backoff(AT_ONCE));
        let counters = bed.work(worker, &ids).await;
        let by_hand = |id: i64| id == ids[2];
        for id in &ids {
            let wanted = match by_hand(*id) {
                true => (vec![Ended::Retired], 0),
                false => (vec![Ended::Done], 1),
            };
            // What SQLite rolls back by itself looks the same as what the handler did, when that failed.
            if text != "rollback, then panic" || !bed.database.is_sqlite() || !by_hand(*id) {
                assert_eq!(ended(bed, *id).await, wanted, "{text}: {:?}", bed.attempts(*id).await);
            }
        }
        if let Some(case) = bed.rowlock.observe().case(ids[2]).await.unwrap() {
            let reason = case.reason;
            assert!(
                text.starts_with("rollback") || reason.starts_with("handler committed its own transaction"),
                "{reason}"
            );
        }
        assert!(counters.batches_undone() >= 1, "{text}");
    }
}

/// Its lease is gone when the batch is settled, as if another worker had ended it.
async fn a_lease_lost_in_a_batch_takes_nobody_with_it(bed: &Bed) {
    let ids = enqueue(bed, ["a", "lost", "thief", "b"]).await;
    let (lost, stolen) = (ids[1], Arc::new(AtomicBool::new(false)));
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let stolen = stolen.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            if job.text == "thief" && !stolen.swap(true, Ordering::SeqCst) {
                let end = format!("delete from rowlock.lease where id = {lost}");
                sqlx::raw_sql(super::sql(&end)).execute(&mut *tx).await?;
            }
            tx.done().ok()
        }
    };
    let worker = worker(bed).lease(LEASE).handle(
        atomic(handler)
            .batch(Batch::up_to(10).within(LEASE / 10))
            .backoff(AT_ONCE),
    );
    let counters = bed.work(worker, &ids).await;
    for id in &ids {
        assert_eq!(rows(bed, *id).await, 1);
        let ends = bed.ends(*id).await;
        assert_eq!(ends.last(), Some(&Ended::Done));
        assert_eq!(ends.len(), if *id == lost { 2 } else { 1 }, "{ends:?}");
    }
    assert_eq!((counters.lease_lost(), counters.batches_undone()), (1, 1));
}

async fn links_results_and_hooks_belong_to_their_job(bed: &Bed) {
    let ids = enqueue(bed, ["a", "fail", "b"]).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let seen = kept.clone();
        async move {
            let id = cx.id();
            write(&mut tx, id, &job.text).await?;
            tx.after_commit(async move {
                seen.push(id.to_string());
                Ok::<(), Fail>(())
            });
            match job.text.as_str() {
                "fail" => fail(Fail::retire("on purpose")),
                _ => tx.done().then(Other { n: id }).result(&id).ok(),
            }
        }
    };
    let counters = bed
        .work(worker(bed).handle(atomic(handler).batch(batch(10))), &ids)
        .await;
    until("the hooks", async || seen.all().len() == 2).await;
    let mut hooks = seen.all();
    hooks.sort();
    assert_eq!(hooks, [ids[0], ids[2]].map(|id| id.to_string()));
    for (id, links) in ids.iter().zip([2, 1, 2]) {
        assert_eq!(bed.rowlock.observe().chain(*id).await.unwrap().len(), links);
    }
    let result = bed.attempts(ids[2]).await[0].result.clone().unwrap();
    assert_eq!(result, serde_json::json!(ids[2]));
    assert_eq!(counters.batches_undone(), 0);
}

async fn what_is_refused_fails_its_job_alone_also_without_the_closing_ok(bed: &Bed) {
    let ids = enqueue(bed, ["a", "bad", "b"]).await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        let options = match job.text.as_str() {
            "bad" => JobOptions::new().queue("two words"),
            _ => JobOptions::new(),
        };
        Ok(tx.done().then_with(Other { n: cx.id() }, options))
    };
    let worker = worker(bed).handle(atomic(handler).batch(batch(10)).backoff(AT_ONCE));
    bed.work(worker, &ids).await;
    assert_eq!(ended(bed, ids[0]).await, (vec![Ended::Done], 1));
    let refused = vec![Ended::Retried, Ended::Retried, Ended::Retired];
    assert_eq!(ended(bed, ids[1]).await, (refused, 0));
    assert_eq!(ended(bed, ids[2]).await, (vec![Ended::Done], 1));
    assert_eq!(
        bed.count("select count(*) from rowlock.job where kind = 'other'").await,
        2
    );
}

async fn a_key_that_is_refused_makes_a_case_of_its_job_alone(bed: &Bed) {
    let held = bed.rowlock.enqueue_now(Other { n: 0 }).key("taken").await.unwrap().id();
    let ids = enqueue(bed, ["a", "taken", "b"]).await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        let options = JobOptions::new().key(job.text);
        tx.done().then_with(Other { n: cx.id() }, options).ok()
    };
    let counters = bed
        .work(worker(bed).handle(atomic(handler).batch(batch(10))), &ids)
        .await;
    for (id, end) in ids
        .iter()
        .zip([(Ended::Done, 1), (Ended::Retired, 0), (Ended::Done, 1)])
    {
        assert_eq!(ended(bed, *id).await, (vec![end.0], end.1));
    }
    assert_eq!(
        bed.count("select count(*) from rowlock.job where kind = 'other'").await,
        3
    );
    assert_eq!(bed.job(held).await.state, State::Ready);
    assert_eq!(counters.batches_undone(), 1);
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "brief", time_limit = "400ms", attempts = 2)]
struct Brief {
    hangs: bool,
}

async fn a_handler_that_hangs_in_a_batch_burns_no_neighbours_attempt(bed: &Bed) {
    let jobs = [false, false, true, false].map(|hangs| Brief { hangs });
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let handler = |cx: Ctx, job: Brief, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "brief").await?;
        if job.hangs && cx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        tx.done().ok()
    };
    let worker = worker(bed).handle(atomic(handler).batch(batch(10)).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    for (n, id) in ids.iter().enumerate() {
        let wanted = match n {
            2 => vec![Ended::Retried, Ended::Done],
            _ => vec![Ended::Done],
        };
        assert_eq!(ended(bed, *id).await, (wanted, 1), "{:?}", bed.attempts(*id).await);
    }
    assert_eq!(counters.batches_undone(), 1);
}

async fn a_transaction_given_away_in_a_batch_costs_no_neighbour(bed: &Bed) {
    let ids = enqueue(bed, ["a", "give", "b"]).await;
    let let_go = CancellationToken::new();
    let gate = let_go.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let gate = gate.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            if job.text != "give" || cx.attempt() > 1 {
                return tx.done().ok();
            }
            tokio::spawn(async move {
                gate.cancelled().await;
                drop(tx);
            });
            fail("gave it away")
        }
    };
    let worker = worker(bed)
        .connections(2)
        .handle(atomic(handler).batch(batch(10)).backoff(AT_ONCE));
    let running = Running::start(worker);
    // On PostgreSQL it is taken back; on SQLite nobody writes while somebody has it.
    if bed.database.is_sqlite() {
        until("the first attempt", async || running.counters.claimed() >= 3).await;
        let_go.cancel();
    }
    for id in &ids {
        until("every job to be done", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
    }
    let counters = running.stop().await;
    for (id, wanted) in ids
        .iter()
        .zip([vec![Ended::Done], vec![Ended::Retried, Ended::Done], vec![Ended::Done]])
    {
        assert_eq!(ended(bed, *id).await, (wanted, 1));
    }
    assert_eq!(counters.batches_undone(), 1);
}

mod tests {
    super::super::cases!(
        jobs_of_a_batch_share_one_commit,
        a_job_that_fails_in_a_batch_fails_alone,
        the_last_of_a_batch_may_fail,
        an_error_that_is_swallowed_spoils_no_neighbour,
        nested_transactions_stay_inside_their_job,
        a_transaction_ended_by_hand_keeps_nothing_of_its_neighbours,
        a_lease_lost_in_a_batch_takes_nobody_with_it,
        links_results_and_hooks_belong_to_their_job,
        what_is_refused_fails_its_job_alone_also_without_the_closing_ok,
        a_key_that_is_refused_makes_a_case_of_its_job_alone,
        a_handler_that_hangs_in_a_batch_burns_no_neighbours_attempt,
        a_transaction_given_away_in_a_batch_costs_no_neighbour,
    );
}
