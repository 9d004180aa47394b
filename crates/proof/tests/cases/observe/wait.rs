//! Await: a caller waits for a job or a chain, and each way to end gives another answer.

use std::time::{Duration, Instant};

use rowlock::{Error, Fail, JobOptions, State, atomic, observe::Awaited};
use sqlx::Connection;

use super::db::{Ctx, Outcome, Tx};
use super::{Bed, Note, Other, Running, fail, until};

/// Ends as its text says.
async fn as_told(_: Ctx, job: Note, tx: Tx) -> Outcome {
    match job.text.as_str() {
        "done" => tx.done().result(&7).ok(),
        "nothing" => tx.done().ok(),
        "retire" => fail(Fail::retire("sold out")),
        "cancel" => fail(Fail::cancel("not wanted any more")),
        _ => fail(Fail::defer(Duration::from_secs(60))),
    }
}

/// A chain of so many links; the last one ends as ordered, and waits for the name before it if it has one.
async fn links(_: Ctx, job: Other, tx: Tx) -> Outcome {
    match job.n {
        0 => fail(Fail::retire("the chain breaks here")),
        1 => tx.done().result(&"the end").ok(),
        n => tx.done().result(&n).then(Other { n: n - 1 }).ok(),
    }
}

async fn every_end_of_a_job_is_told_apart(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(as_told)));
    let wait = async |text: &str, limit: u64| {
        let id = bed.note(text).await;
        let wait = bed.rowlock.wait(id).timeout(Duration::from_millis(limit));
        wait.await.unwrap()
    };
    assert_eq!(wait("done", 20_000).await, Awaited::Done(Some(7.into())));
    assert_eq!(wait("nothing", 20_000).await, Awaited::Done(None));
    assert_eq!(wait("retire", 20_000).await, Awaited::Retired("sold out".into()));
    assert_eq!(
        wait("cancel", 20_000).await,
        Awaited::Cancelled("not wanted any more".into())
    );
    let start = Instant::now();
    let gave_up = wait("later", 300).await;
    assert!(
        matches!(gave_up, Awaited::TimedOut(State::Ready | State::Leased)),
        "{gave_up:?}"
    );
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    running.stop().await;
}

async fn a_timeout_of_nothing_is_one_look(bed: &Bed) {
    let ready = bed.note("x").await;
    let waiting = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("a")
        .await
        .unwrap()
        .id();
    for (id, state) in [(ready, State::Ready), (waiting, State::Waiting)] {
        let look = bed.rowlock.wait(id).timeout(Duration::ZERO).await.unwrap();
        assert_eq!(look, Awaited::TimedOut(state));
    }
}

async fn a_job_that_is_not_there_is_not_found(bed: &Bed) {
    let said = bed.rowlock.wait(4711).await.unwrap_err();
    assert!(matches!(said, Error::NotFound(_)), "{said:?}");
    assert_eq!(
        said.to_string(),
        "no job 4711: it is not committed yet, or its retention is over"
    );
    let said = bed.rowlock.wait(4711).chain().await.unwrap_err();
    assert!(matches!(said, Error::NotFound(_)), "{said:?}");

    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let id = bed.rowlock.enqueue(&mut tx, Note::new("x")).await.unwrap().id();
    let said = bed.rowlock.wait(id).timeout(Duration::from_secs(5)).await;
    assert!(
        matches!(said, Err(Error::NotFound(_))),
        "nobody else can see it yet: {said:?}"
    );
    tx.rollback().await.unwrap();
}

async fn a_job_pruned_while_it_is_waited_for_is_not_found(bed: &Bed) {
    for drop_body in [true, false] {
        let id = bed.note("x").await;
        let mut wait = bed.rowlock.wait(id).timeout(Duration::from_secs(20)).into_future();
        let early = tokio::time::timeout(Duration::from_millis(500), &mut wait).await;
        assert!(early.is_err(), "it has looked, and looks again: {early:?}");
        // As if it had been done, and its retention ended, between two looks; the body goes after the history.
        let body = format!("delete from rowlock.job where id = {id};");
        let body = if drop_body { body.as_str() } else { "" };
        bed.run(&format!("{body} delete from rowlock.ready where id = {id}"))
            .await;
        let said = wait.await.unwrap_err();
        assert_eq!(
            said.to_string(),
            format!("job {id} has ended and its history was removed; its outcome is no longer known")
        );
    }
}

async fn a_chain_is_waited_for_to_its_last_link(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(links)));
    let enqueue = async |n| bed.rowlock.enqueue_now(Other { n }).await.unwrap().id();
    let limit = Duration::from_secs(20);
    let id = enqueue(5).await;
    let first = bed.rowlock.wait(id).timeout(limit).await.unwrap();
    assert_eq!(first, Awaited::Done(Some(5.into())), "one link alone");
    let all = bed.rowlock.wait(id).chain().timeout(limit).await.unwrap();
    assert_eq!(all, Awaited::Done(Some("the end".into())));
    let chain = bed.rowlock.observe().chain(id).await.unwrap();
    assert!(chain.len() == 5 && chain.iter().all(|j| j.state == State::Finished));
    // From the middle it is the same chain.
    let middle = bed.rowlock.wait(chain[2].id).chain().await.unwrap();
    assert_eq!(middle, Awaited::Done(Some("the end".into())));
    running.stop().await;
}

async fn a_chain_is_over_at_its_first_retired_link_and_shows_where_it_stands(bed: &Bed) {
    let handler = |_: Ctx, job: Note, tx: Tx| async move {
        match job.text.as_str() {
            "first" => tx.done().then(Note::new("retire")).then(Note::new("slow")).ok(),
            "waits" => {
                let options = JobOptions::new().waits_for("never");
                tx.done().then_with(Note::new("held"), options).ok()
            }
            "retire" => fail(Fail::retire("the chain breaks here")),
            _ => fail(Fail::defer(Duration::from_secs(60))),
        }
    };
    let running = Running::start(bed.worker().handle(atomic(handler)));
    let id = bed.note("first").await;
    let over = bed
        .rowlock
        .wait(id)
        .chain()
        .timeout(Duration::from_secs(20))
        .await
        .unwrap();
    assert_eq!(over, Awaited::Retired("the chain breaks here".into()));
    let id = bed.note("waits").await;
    until("the next link to wait", async || {
        let chain = bed.rowlock.observe().chain(id).await.unwrap();
        chain.get(1).is_some_and(|link| link.state == State::Waiting)
    })
    .await;
    let stands = bed.rowlock.wait(id).chain().timeout(Duration::ZERO).await.unwrap();
    assert_eq!(stands, Awaited::TimedOut(State::Waiting));
    running.stop().await;
}

async fn the_result_of_a_chain_is_never_its_compensations(bed: &Bed) {
    let pay = |cx: Ctx, _: Other, tx: Tx| async move {
        match cx.epoch() {
            1 => fail(Fail::retire("the bank is away")),
            _ => tx.done().result(&"paid").ok(),
        }
    };
    let undo = |_: Ctx, _: Note, tx: Tx| async move { tx.done().result(&"told them").ok() };
    let running = Running::start(bed.worker().handle(atomic(pay)).handle(atomic(undo)));
    let enqueue = bed.rowlock.enqueue_now(Other { n: 1 }).if_retired(Note::new("sorry"));
    let id = enqueue.await.unwrap().id();
    let chain = async || {
        bed.rowlock
            .wait(id)
            .chain()
            .timeout(Duration::from_secs(20))
            .await
            .unwrap()
    };
    assert_eq!(chain().await, Awaited::Retired("the bank is away".into()));
    until("the compensation to be done", async || {
        let links = bed.rowlock.observe().chain(id).await.unwrap();
        links.get(1).is_some_and(|link| link.state == State::Finished)
    })
    .await;
    bed.rowlock.operate().reopen(id, "Ada").await.unwrap();
    assert_eq!(chain().await, Awaited::Done(Some("paid".into())));
    running.stop().await;
}

async fn a_chain_goes_on_being_waited_for_when_the_history_of_an_early_link_is_gone(bed: &Bed) {
    let handler = |_: Ctx, job: Other, tx: Tx| async move {
        match job.n {
            2 => {
                let options = JobOptions::new().waits_for("go");
                tx.done().then_with(Other { n: 1 }, options).ok()
            }
            _ => tx.done().result(&"the end").ok(),
        }
    };
    let running = Running::start(bed.worker().handle(atomic(handler)));
    let id = bed.rowlock.enqueue_now(Other { n: 2 }).await.unwrap().id();
    let first = bed.rowlock.wait(id).timeout(Duration::from_secs(20)).await.unwrap();
    assert_eq!(first, Awaited::Done(None));
    bed.run(&format!("delete from rowlock.outcome where id = {id}")).await;
    let look = bed.rowlock.wait(id).chain().timeout(Duration::ZERO).await.unwrap();
    assert_eq!(look, Awaited::TimedOut(State::Waiting));
    let mut conn = bed.conn().await;
    let _ = bed.rowlock.complete(&mut conn, "go", &()).await.unwrap();
    let over = bed.rowlock.wait(id).chain().timeout(Duration::from_secs(20)).await;
    assert_eq!(over.unwrap(), Awaited::Done(Some("the end".into())));
    running.stop().await;
}

mod tests {
    super::super::cases!(
        every_end_of_a_job_is_told_apart,
        a_timeout_of_nothing_is_one_look,
        a_job_that_is_not_there_is_not_found,
        a_job_pruned_while_it_is_waited_for_is_not_found,
        a_chain_is_waited_for_to_its_last_link,
        a_chain_is_over_at_its_first_retired_link_and_shows_where_it_stands,
        the_result_of_a_chain_is_never_its_compensations,
        a_chain_goes_on_being_waited_for_when_the_history_of_an_early_link_is_gone,
    );
}
