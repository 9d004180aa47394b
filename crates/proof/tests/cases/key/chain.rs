//! Keys in handlers: jobs enqueued in a handler's own transaction, and next links, in it and in the engine's batches.

use std::time::Duration;

use rowlock::{Ended, Fail, JobOptions, State, atomic, staged};

use super::db::{Ctx, Staged, Tx};
use super::{Bed, Note, Other, fail, write};

async fn made(bed: &Bed) -> [i64; 2] {
    [
        bed.count("select count(*) from rowlock.job").await,
        bed.count("select count(*) from rowlock.job_key").await,
    ]
}

async fn a_handler_enqueues_with_a_key_in_its_own_transaction(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        let put = cx.rowlock().enqueue(&mut tx, Other { n: 1 }).key("other").await?;
        if cx.attempt() == 1 {
            assert!(put.is_new());
            return fail(Fail::retry_after(Duration::ZERO, "once more"));
        }
        assert!(put.is_new(), "what the first attempt took was rolled back");
        let _ = cx.rowlock().enqueue(&mut tx, Other { n: 2 }).key("other").await?;
        tx.done().ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(
        case.reason
            .starts_with("key \"other\" is already used by a different request"),
        "{}",
        case.reason
    );
    assert_eq!(
        (bed.ends(id).await, made(bed).await),
        (vec![Ended::Retried, Ended::Retired], [1, 0])
    );
}

fn keyed(key: &str) -> JobOptions {
    JobOptions::new().key(key)
}

async fn a_next_link_whose_key_is_held_makes_no_second_job(bed: &Bed) {
    let held = bed
        .rowlock
        .enqueue_now(Other { n: 1 })
        .key("other:1")
        .await
        .unwrap()
        .id();
    let ids = bed
        .rowlock
        .enqueue_all_now(["atomic", "x"].map(Note::new))
        .await
        .unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        let n = if job.text == "x" { 2 } else { 1 };
        tx.done().then_with(Other { n }, keyed(&format!("other:{n}"))).ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &ids).await;
    assert_eq!(bed.ledger().await, 2, "both are done");
    assert_eq!(bed.rowlock.observe().chain(ids[0]).await.unwrap().len(), 1);
    let chain = bed.rowlock.observe().chain(ids[1]).await.unwrap();
    assert_eq!((chain.len(), chain[1].key.as_deref()), (2, Some("other:2")));
    assert_eq!(bed.job(held).await.state, State::Ready);

    // The same from a batch of the engine.
    let id = bed.note("staged").await;
    let handler = |cx: Staged, _: Note| async move { cx.done().then_with(Other { n: 1 }, keyed("other:1")).ok() };
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Done]);
    assert_eq!(
        bed.count("select count(*) from rowlock.job where kind = 'other'").await,
        2
    );
}

async fn a_next_link_that_contradicts_its_key_makes_a_case_and_keeps_nothing(bed: &Bed) {
    let _ = bed.rowlock.enqueue_now(Other { n: 1 }).key("other").await.unwrap();
    let id = bed.note("x").await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        tx.done()
            .then(Note::new("free"))
            .then_with(Other { n: 2 }, keyed("other"))
            .ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(
        case.reason
            .starts_with("key \"other\" is already used by a different request"),
        "{}",
        case.reason
    );
    assert_eq!((bed.ends(id).await, bed.ledger().await), (vec![Ended::Retired], 0));
    assert_eq!(
        bed.count("select count(*) from rowlock.job").await,
        2,
        "no next link is left of it"
    );
}

async fn a_contradiction_in_an_engine_batch_fails_no_neighbour(bed: &Bed) {
    let _ = bed.rowlock.enqueue_now(Other { n: 0 }).key("other").await.unwrap();
    let texts: Vec<Note> = (0..40).map(|n| Note::new(&n.to_string())).collect();
    let ids = bed.rowlock.enqueue_all_now(texts).await.unwrap();
    let handler = |cx: Staged, job: Note| async move {
        let n: i64 = job.text.parse().unwrap_or_default();
        let next = Other { n };
        match n % 4 {
            // Held by another request; free; held by nobody else's; none.
            0 => cx.done().then_with(Other { n: n + 1 }, keyed("other")).ok(),
            1 => cx.done().then_with(next, keyed(&format!("other:{n}"))).ok(),
            2 => cx.done().then(next).ok(),
            _ => cx.done().ok(),
        }
    };
    let worker = rowlock::Worker::new(&bed.rowlock)
        .queue("default", 40)
        .handle(staged(handler));
    let counters = bed.work(worker, &ids).await;
    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Retired)),
        (30, 10)
    );
    for (n, id) in ids.iter().enumerate() {
        let wanted = if n % 4 == 0 { Ended::Retired } else { Ended::Done };
        assert_eq!(bed.ends(*id).await, [wanted], "job {n}");
        let links = bed.rowlock.observe().chain(*id).await.unwrap().len();
        assert_eq!(links, if n % 4 == 1 || n % 4 == 2 { 2 } else { 1 }, "job {n}");
    }
    let case = bed.rowlock.observe().case(ids[4]).await.unwrap().unwrap();
    assert!(
        case.reason
            .starts_with("key \"other\" is already used by a different request"),
        "{}",
        case.reason
    );
}

mod tests {
    super::super::cases!(
        a_handler_enqueues_with_a_key_in_its_own_transaction,
        a_next_link_whose_key_is_held_makes_no_second_job,
        a_next_link_that_contradicts_its_key_makes_a_case_and_keeps_nothing,
        a_contradiction_in_an_engine_batch_fails_no_neighbour,
    );
}
