//! When a compensation comes: with the retirement, at most once, and not before somebody has decided about a parked
//! doubt.

use rowlock::{Ended, Error, Fail, State, atomic, effect::Resolution, staged};
use tokio_util::sync::CancellationToken;

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{
    AT_ONCE, Bed, LEASE, Note, Other, Running, fail,
    journal::{only, reopen},
    until, vanish,
};

async fn put(bed: &Bed, text: &str) -> i64 {
    let put = bed.rowlock.enqueue_now(Note::new(text)).attempts(2);
    put.if_retired(Other { n: 7 }).await.unwrap().id()
}

/// The compensations in the job's chain.
async fn compensations(bed: &Bed, id: i64) -> usize {
    let chain = bed.rowlock.observe().chain(id).await.unwrap();
    chain.iter().filter(|link| link.kind == "other").count()
}

/// Parks on its first call, whose answer is lost; ends as ordered after it.
async fn park(cx: Staged, job: Note) -> Outcome {
    let first = cx.epoch() == 1;
    let call = cx.effect("charge", async |_| if first { Err("no answer") } else { Ok(1) });
    let paid: i64 = call.park().await?;
    match job.text.as_str() {
        "give up" => fail(Fail::retire("no stock")),
        _ => cx.done().result(&paid).ok(),
    }
}

async fn work(bed: &Bed, ids: &[i64]) {
    bed.work(bed.worker().handle(staged(park).backoff(AT_ONCE)), ids).await;
}

async fn resolve(bed: &Bed, id: i64, found: Resolution) {
    let no = only(bed, id).await.no;
    let operate = bed.rowlock.operate();
    assert_eq!(operate.resolve_effect(no, found, "tess").await.unwrap(), id);
}

async fn a_parked_doubt_is_not_compensated_before_somebody_decides(bed: &Bed) {
    let mut ids = Vec::new();
    for (text, found) in [
        ("go on", Resolution::Happened(12.into())),
        ("go on", Resolution::NotHappened),
        ("give up", Resolution::Happened(12.into())),
        ("give up", Resolution::NotHappened),
    ] {
        ids.push((put(bed, text).await, text, found));
    }
    let all: Vec<i64> = ids.iter().map(|(id, ..)| *id).collect();
    work(bed, &all).await;
    for id in &all {
        assert_eq!(bed.job(*id).await.state, State::Case);
        assert_eq!(compensations(bed, *id).await, 0, "nobody knows what to compensate");
        // Looked at again, and in doubt as before.
        reopen(bed, *id).await;
    }
    work(bed, &all).await;
    for (id, _, found) in &ids {
        assert_eq!(
            (bed.job(*id).await.state, compensations(bed, *id).await),
            (State::Case, 0)
        );
        resolve(bed, *id, found.clone()).await;
        reopen(bed, *id).await;
    }
    work(bed, &all).await;
    for (id, text, found) in &ids {
        let (state, compensated) = match *text {
            "go on" => (State::Finished, 0),
            _ => (State::Case, 1),
        };
        assert_eq!(bed.job(*id).await.state, state, "{text}, {found:?}");
        assert_eq!(compensations(bed, *id).await, compensated, "{text}, {found:?}");
    }
}

async fn a_worker_lost_in_a_parked_call_leaves_a_case_without_compensation(bed: &Bed) {
    let put = bed.rowlock.enqueue_now(Note::new("go on")).attempts(1);
    let id = put.if_retired(Other { n: 7 }).await.unwrap().id();
    let called = CancellationToken::new();
    let calling = called.clone();
    let hang = move |cx: Staged, _: Note| {
        let calling = calling.clone();
        async move {
            let call = cx.effect("charge", async |_| {
                calling.cancel();
                std::future::pending::<Result<i64, Fail>>().await
            });
            call.park().await?;
            cx.done().ok()
        }
    };
    vanish(bed.hasty_worker().handle(staged(hang)), async move {
        called.cancelled().await
    })
    .await;
    let running = Running::start(bed.hasty_worker().handle(staged(park)));
    proof::bed::until("the lease to end", LEASE * 15, async || {
        (bed.job(id).await.state == State::Case).then_some(())
    })
    .await;
    assert_eq!(compensations(bed, id).await, 0);
    resolve(bed, id, Resolution::Happened(12.into())).await;
    reopen(bed, id).await;
    until("the job to be done", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
    running.stop().await;
    assert_eq!(
        (bed.ends(id).await, compensations(bed, id).await),
        (vec![Ended::Lost, Ended::Done], 0)
    );
}

/// The attempt has seen the doubt and not what was found out: it is retired for a question that is answered by then.
async fn a_doubt_resolved_while_its_attempt_ends_is_not_compensated(bed: &Bed) {
    let id = put(bed, "go on").await;
    let rowlock = bed.rowlock.clone();
    let handler = move |cx: Staged, job: Note| {
        let operate = rowlock.operate();
        async move {
            let first = cx.epoch() == 1;
            let ended = park(cx, job).await;
            if first {
                let happened = Resolution::Happened(12.into());
                operate.resolve_effect(1, happened, "tess").await?;
            }
            ended
        }
    };
    bed.work(bed.worker().handle(staged(handler.clone())), &[id]).await;
    assert_eq!(bed.job(id).await.state, State::Case);
    assert_eq!(only(bed, id).await.resolved_by.as_deref(), Some("tess"));
    assert_eq!(compensations(bed, id).await, 0);
    reopen(bed, id).await;
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    assert_eq!(
        (bed.job(id).await.result, compensations(bed, id).await),
        (Some(12.into()), 0)
    );
}

/// Its keys are honoured at the other side, so the doubt is no question to a person.
async fn a_doubt_that_is_not_parked_withholds_nothing(bed: &Bed) {
    let id = put(bed, "x").await;
    let handler = |cx: Staged, _: Note| async move {
        cx.effect("charge", async |_| Err::<(), _>("no answer")).await?;
        cx.done().ok()
    };
    bed.work(bed.worker().handle(staged(handler).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(
        (bed.job(id).await.state, compensations(bed, id).await),
        (State::Case, 1)
    );
}

async fn a_job_that_is_retired_again_is_compensated_once(bed: &Bed) {
    let id = put(bed, "x").await;
    for round in 1..=3 {
        let handler = |_: Ctx, _: Note, _: Tx| async { fail(Fail::retire("no stock")) };
        bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
        assert_eq!(bed.ends(id).await.len(), round);
        assert_eq!(compensations(bed, id).await, 1, "round {round}");
        reopen(bed, id).await;
    }
}

/// Where nobody shows attempts, it goes on as it came.
async fn a_trace_goes_on_to_the_next_link_and_to_the_compensation(bed: &Bed) {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 shop=1";
    let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text)).trace(trace);
    let (done, retired) = (
        put("done").await.unwrap().id(),
        put("no").if_retired(Other { n: 7 }).await.unwrap().id(),
    );
    let handler = async |_: Ctx, job: Note, tx: Tx| match job.text.as_str() {
        "done" => tx.done().then(Other { n: 1 }).ok(),
        _ => fail(Fail::retire("no")),
    };
    bed.work(bed.worker().handle(atomic(handler)), &[done, retired]).await;
    let others = format!("select count(*) from rowlock.job where kind = 'other' and trace = '{trace}'");
    assert_eq!(bed.count(&others).await, 2);
    let refused = bed.rowlock.enqueue_now(Note::new("x")).trace("no trace").await;
    assert!(
        matches!(&refused, Err(Error::Invalid { field, .. }) if field == "trace"),
        "{refused:?}"
    );
}

mod tests {
    super::super::cases!(
        a_trace_goes_on_to_the_next_link_and_to_the_compensation,
        a_parked_doubt_is_not_compensated_before_somebody_decides,
        a_worker_lost_in_a_parked_call_leaves_a_case_without_compensation,
        a_doubt_resolved_while_its_attempt_ends_is_not_compensated,
        a_doubt_that_is_not_parked_withholds_nothing,
        a_job_that_is_retired_again_is_compensated_once,
    );
}
