//! Chains: jobs joined commit by commit.

use rowlock::{Ended, Job, JobOptions, State, observe::JobView};
use serde::{Deserialize, Serialize};
use sqlx::Connection;

use super::{AT_ONCE, Bed, Note, Other, fail, note, until, write};
use super::{
    Running,
    db::{Ctx, Outcome, Staged, Tx},
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "reserve")]
struct Reserve {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge")]
struct Charge {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "receipt")]
struct Receipt {
    order: i64,
}

async fn reserve(cx: Ctx, job: Reserve, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), "reserve").await?;
    tx.done().then(Charge { order: job.order }).ok()
}

/// A staged link that writes nothing itself: the engine settles it and its next link.
async fn charge(cx: Staged, job: Charge) -> Outcome {
    cx.done().then(Receipt { order: job.order }).ok()
}

async fn receipt(cx: Ctx, job: Receipt, mut tx: Tx) -> Outcome {
    write(
        &mut tx,
        cx.id(),
        &format!("receipt {} of chain {}", job.order, cx.chain()),
    )
    .await?;
    tx.done().ok()
}

async fn chain(bed: &Bed, id: i64) -> Vec<JobView> {
    bed.rowlock.observe().chain(id).await.unwrap()
}

async fn a_chain_started_in_the_callers_transaction_runs_to_its_end(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let root = bed.rowlock.enqueue(&mut *tx, Reserve { order: 42 }).await.unwrap().id();
    tx.commit().await.unwrap();

    let running = Running::start(
        bed.worker()
            .handle(rowlock::atomic(reserve))
            .handle(rowlock::staged(charge))
            .handle(rowlock::atomic(receipt)),
    );
    until("the chain to end", async || running.counters.settled(Ended::Done) == 3).await;
    running.stop().await;

    let links = chain(bed, root).await;
    let shape: Vec<_> = links
        .iter()
        .map(|l| (l.kind.as_str(), l.position, l.chain, l.state))
        .collect();
    let done = State::Finished;
    let expected = [
        ("reserve", 0, None, done),
        ("charge", 1, Some(root), done),
        ("receipt", 2, Some(root), done),
    ];
    assert_eq!(shape, expected);
    assert!(links.iter().all(|l| l.payload["order"] == 42));
    for link in &links {
        let ids: Vec<i64> = chain(bed, link.id).await.iter().map(|l| l.id).collect();
        assert_eq!(
            ids,
            links.iter().map(|l| l.id).collect::<Vec<_>>(),
            "read from link {}",
            link.position
        );
    }
    let note = format!("select count(*) from ledger where note = 'receipt 42 of chain {root}'");
    assert_eq!(bed.count(&note).await, 1);
}

async fn a_chain_of_a_rolled_back_caller_never_was(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let root = bed.rowlock.enqueue(&mut *tx, Reserve { order: 1 }).await.unwrap().id();
    tx.rollback().await.unwrap();
    assert!(chain(bed, root).await.is_empty());
}

async fn a_job_without_links_is_a_chain_of_one(bed: &Bed) {
    let id = bed.note("alone").await;
    bed.work(bed.worker().handle(rowlock::atomic(note)), &[id]).await;
    let links = chain(bed, id).await;
    assert_eq!(links.iter().map(|l| (l.id, l.position)).collect::<Vec<_>>(), [(id, 0)]);
}

async fn one_link_may_have_several_next_ones(bed: &Bed) {
    let root = bed.note("fan out").await;
    let fan_out = |_: Ctx, _: Note, tx: Tx| async {
        let options = JobOptions::new().queue("slow").priority(1).attempts(2).tag("last");
        tx.done()
            .then(Other { n: 1 })
            .then(Other { n: 2 })
            .then_with(Charge { order: 3 }, options)
            .ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(fan_out)), &[root]).await;

    let links = chain(bed, root).await;
    assert_eq!(links.len(), 4);
    assert!(
        links[1..]
            .iter()
            .all(|l| (l.position, l.chain, l.state) == (1, Some(root), State::Ready))
    );
    let last = &links[3];
    assert_eq!((last.queue.as_str(), last.priority, last.attempts_max), ("slow", 1, 2));
    assert_eq!(last.tags, ["last"]);
}

async fn a_handler_that_fails_after_building_the_next_link_leaves_none(bed: &Bed) {
    let root = bed.rowlock.enqueue_now(Note::new("x")).attempts(2).await.unwrap().id();
    let handler = |cx: Ctx, _: Note, tx: Tx| async move {
        let done = tx.done().then(Other { n: cx.attempt().into() });
        if cx.attempt() == 1 {
            return fail("second thoughts");
        }
        done.ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler).backoff(AT_ONCE)), &[root])
        .await;
    let links = chain(bed, root).await;
    assert_eq!(links.len(), 2);
    assert_eq!(links[1].payload["n"], 2);
}

async fn an_invalid_next_link_fails_the_attempt_and_writes_nothing(bed: &Bed) {
    let atomic = bed.rowlock.enqueue_now(Note::new("x")).attempts(1).await.unwrap().id();
    let staged = bed.rowlock.enqueue_now(Other { n: 1 }).attempts(1).await.unwrap().id();
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "gone").await?;
        tx.done().then(Other { n: 1 }).then(Note::new("a\0b")).ok()
    };
    let outside = |cx: Staged, _: Other| async {
        cx.done()
            .then_with(Note::new("x"), JobOptions::new().queue("two words"))
            .ok()
    };
    bed.work(
        bed.worker()
            .handle(rowlock::atomic(handler))
            .handle(rowlock::staged(outside)),
        &[atomic, staged],
    )
    .await;

    for (id, field) in [(atomic, "payload: "), (staged, "queue: ")] {
        let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
        assert!(case.reason.starts_with(field), "{}", case.reason);
        assert_eq!(chain(bed, id).await.len(), 1);
    }
    assert_eq!(bed.ledger().await, 0);
}

/// `Ok(tx.done().then(…))` is what most people write first.
async fn what_is_refused_fails_the_attempt_also_without_the_closing_ok(bed: &Bed) {
    let note = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).attempts(1).await.unwrap().id();
    let (link, result) = (note("link").await, note("result").await);
    let staged = bed.rowlock.enqueue_now(Other { n: 1 }).attempts(1).await.unwrap().id();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "gone").await?;
        match job.text.as_str() {
            "link" => Ok(tx.done().then(Other { n: 1 }).then(Note::new("a\0b"))),
            _ => Ok(tx.done().result(&"a\0b")),
        }
    };
    let outside = |cx: Staged, _: Other| async {
        let options = JobOptions::new().queue("two words");
        Ok(cx.done().then_with(Note::new("x"), options))
    };
    bed.work(
        bed.worker()
            .handle(rowlock::atomic(handler))
            .handle(rowlock::staged(outside)),
        &[link, result, staged],
    )
    .await;

    for (id, field) in [(link, "payload: "), (result, "result: "), (staged, "queue: ")] {
        let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
        assert!(case.reason.starts_with(field), "{}", case.reason);
        assert_eq!(chain(bed, id).await.len(), 1);
    }
    assert_eq!(bed.ledger().await, 0);
}

mod tests {
    super::super::cases!(
        a_chain_started_in_the_callers_transaction_runs_to_its_end,
        a_chain_of_a_rolled_back_caller_never_was,
        a_job_without_links_is_a_chain_of_one,
        one_link_may_have_several_next_ones,
        a_handler_that_fails_after_building_the_next_link_leaves_none,
        an_invalid_next_link_fails_the_attempt_and_writes_nothing,
        what_is_refused_fails_the_attempt_also_without_the_closing_ok,
    );
}
