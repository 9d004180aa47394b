//! Who joins a batch: jobs of its kind, in order, while size and time allow it, and none that must run alone.

use std::{sync::Arc, time::Duration};

use rowlock::{Batch, Ended, Error, atomic};
use tokio::sync::Notify;

use super::db::{Ctx, Tx};
use super::{
    AT_ONCE, Bed, LEASE, Note, Other, Running, Seen,
    batch::{as_told, batch, ended, enqueue, look, rows, told, worker},
    note, vanish, write,
};

async fn a_stop_ends_a_batch_after_the_job_under_way(bed: &Bed) {
    let ids = enqueue(bed, ["a", "wait", "b", "c"]).await;
    let waits = Arc::new(Notify::new());
    let entered = waits.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let entered = entered.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            if job.text == "wait" {
                entered.notify_one();
                cx.stopping().await;
            }
            tx.done().ok()
        }
    };
    let running = Running::start(worker(bed).handle(atomic(handler).batch(batch(10))));
    waits.notified().await;
    running.stop().await;
    for (id, wanted) in ids.iter().zip([
        (Ended::Done, 1),
        (Ended::Done, 1),
        (Ended::Released, 0),
        (Ended::Released, 0),
    ]) {
        assert_eq!(ended(bed, *id).await, (vec![wanted.0], wanted.1));
    }
}

async fn a_job_whose_worker_was_lost_shares_no_transaction(bed: &Bed) {
    let ids = enqueue(bed, ["a", "b", "c"]).await;
    let started = Arc::new(Notify::new());
    let entered = started.clone();
    let hang = move |_: Ctx, job: Note, tx: Tx| {
        let entered = entered.clone();
        async move {
            if job.text == "c" {
                entered.notify_one();
                std::future::pending::<()>().await;
            }
            tx.done().ok()
        }
    };
    let short = Batch::up_to(10).within(LEASE / 10);
    let first = worker(bed).lease(LEASE).handle(atomic(hang).batch(short));
    vanish(first, async move { started.notified().await }).await;
    let more = enqueue(bed, ["d", "e"]).await;

    let seen = Seen::default();
    let (kept, url) = (seen.clone(), bed.database.url.clone());
    let handler = move |cx: Ctx, _: Note, mut tx: Tx| {
        let (seen, url) = (kept.clone(), url.clone());
        async move {
            match cx.is_recovered() {
                true => look(&seen, &url, &cx, &mut tx).await?,
                false => write(&mut tx, cx.id(), "fresh").await?,
            }
            tx.done().ok()
        }
    };
    let all = [ids.clone(), more].concat();
    bed.work(worker(bed).lease(LEASE).handle(atomic(handler).batch(short)), &all)
        .await;
    assert_eq!(seen.all().len(), 3);
    for line in seen.all() {
        let (inside, outside) = line.split_once(" of which ").unwrap();
        assert_eq!(
            format!("{inside} committed"),
            outside,
            "nothing is uncommitted beside it"
        );
    }
    for id in all {
        assert_eq!(rows(bed, id).await, 1);
    }
}

async fn a_batch_passes_over_no_job_of_better_priority(bed: &Bed) {
    let seen = Seen::default();
    let mut ids = Vec::new();
    for (text, priority) in [("1", 1), ("also 1", 1), ("3", 3)] {
        ids.push(
            bed.rowlock
                .enqueue_now(Note::new(text))
                .priority(priority)
                .await
                .unwrap()
                .id(),
        );
    }
    ids.push(bed.rowlock.enqueue_now(Other { n: 2 }).priority(2).await.unwrap().id());
    let (notes, others) = (seen.clone(), seen.clone());
    let note = move |cx: Ctx, job: Note, tx: Tx| {
        notes.push(job.text.clone());
        note(cx, job, tx)
    };
    let other = move |_: Ctx, job: Other, tx: Tx| {
        others.push(job.n.to_string());
        async move { tx.done().ok() }
    };
    bed.work(
        worker(bed).handle(atomic(note).batch(batch(10))).handle(atomic(other)),
        &ids,
    )
    .await;
    assert_eq!(seen.all(), ["1", "also 1", "2", "3"]);
}

async fn a_batch_that_cannot_be_is_refused_with_a_sentence(bed: &Bed) {
    let refusal = async |batch: Batch| match worker(bed).handle(atomic(note).batch(batch)).run_until(async {}).await {
        Err(Error::Config(sentence)) => sentence,
        other => panic!("not refused: {other:?}"),
    };
    for jobs in [0, 51] {
        let wanted = format!("kind \"note\": batch size {jobs} is out of range (1 to 50, default 10)");
        assert_eq!(refusal(Batch::up_to(jobs)).await, wanted);
    }
    let long = "kind \"note\": batch time 2s is out of range (above 0, at most a tenth of the lease: 1.5s)";
    assert_eq!(refusal(Batch::default().within(Duration::from_secs(2))).await, long);
}

async fn many_slots_of_batches_do_every_job_once(bed: &Bed) {
    let jobs = (0..500).map(|n| Note::new(if n % 25 == 0 { "fail" } else { "done" }));
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let worker = bed
        .worker()
        .handle(atomic(as_told).batch(Batch::default()).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Retried)),
        (500, 20)
    );
    let distinct = "select count(distinct job) from ledger";
    assert_eq!((bed.ledger().await, bed.count(distinct).await), (500, 500));
    for place in ["lease", "ready"] {
        assert_eq!(bed.count(&format!("select count(*) from rowlock.{place}")).await, 0);
    }
}

async fn without_savepoints_a_job_still_fails_alone(bed: &Bed) {
    let told = told();
    let ids = enqueue(bed, told.clone().map(|(text, ..)| text)).await;
    let worker = worker(bed).handle(atomic(as_told).batch(batch(10).without_savepoints()).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    for (id, (text, ends, rows)) in ids.iter().zip(told) {
        assert_eq!(ended(bed, *id).await, (ends, rows), "{text}");
    }
    assert!(
        counters.batches_undone() >= 1,
        "the failures took their batches with them"
    );
}

async fn without_savepoints_a_swallowed_error_spoils_no_neighbour(bed: &Bed) {
    let ids = enqueue(bed, ["a", "b", "swallow"]).await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if job.text == "swallow" && cx.attempt() == 1 {
            let null = sqlx::query("insert into ledger (job, note) values (1, null)");
            let _ = null.execute(&mut *tx).await;
        }
        tx.done().ok()
    };
    let worker = worker(bed).handle(atomic(handler).batch(batch(10).without_savepoints()).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    let (swallowed, undone) = match bed.database.is_sqlite() {
        true => (vec![Ended::Done], 0),
        false => (vec![Ended::Retried, Ended::Done], 1),
    };
    for (id, wanted) in ids.iter().zip([vec![Ended::Done], vec![Ended::Done], swallowed]) {
        assert_eq!(ended(bed, *id).await, (wanted, 1));
    }
    assert_eq!(counters.batches_undone(), undone);
}

async fn without_savepoints_many_slots_do_every_job_once(bed: &Bed) {
    let jobs = (0..500).map(|n| Note::new(if n % 100 == 0 { "fail" } else { "done" }));
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let batch = Batch::default().without_savepoints();
    let worker = bed.worker().handle(atomic(as_told).batch(batch).backoff(AT_ONCE));
    let counters = bed.work(worker, &ids).await;
    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Retried)),
        (500, 5)
    );
    let distinct = "select count(distinct job) from ledger";
    assert_eq!((bed.ledger().await, bed.count(distinct).await), (500, 500));
}

mod tests {
    super::super::cases!(
        a_stop_ends_a_batch_after_the_job_under_way,
        a_job_whose_worker_was_lost_shares_no_transaction,
        a_batch_passes_over_no_job_of_better_priority,
        a_batch_that_cannot_be_is_refused_with_a_sentence,
        many_slots_of_batches_do_every_job_once,
        without_savepoints_a_job_still_fails_alone,
        without_savepoints_a_swallowed_error_spoils_no_neighbour,
        without_savepoints_many_slots_do_every_job_once,
    );
}
