//! What becomes of a group when its head fails, is retired, expires, is lost or is paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rowlock::{Ended, Fail, Group, Retention, State, atomic, operate::Target, staged};
use tokio::sync::{Notify, Semaphore};

use super::db::{Ctx, Staged, Tx, Worker};
use super::{
    AT_ONCE, Bed, Note, Other, Running, Seen, fail, note,
    retention::policy::{DAY, Rigged},
    turns::{put, puts, written},
    until, vanish, write,
};

async fn a_head_that_fails_holds_its_group_while_it_is_tried_again(bed: &Bed) {
    let ids = puts(bed, "a", &["bad", "good"]).await;
    let (seen, tries) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (told, tried) = (seen.clone(), tries.clone());
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let (told, tried) = (told.clone(), tried.clone());
        async move {
            told.push(&job.text);
            if job.text == "bad" && tried.fetch_add(1, Ordering::SeqCst) < 2 {
                return fail("not yet");
            }
            write(&mut tx, cx.id(), &job.text).await?;
            tx.done().ok()
        }
    };
    bed.work(bed.worker().handle(atomic(handler).backoff(AT_ONCE)), &ids)
        .await;
    assert_eq!(seen.all(), ["bad", "bad", "bad", "good"]);
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retried, Ended::Retried, Ended::Done]);
}

async fn gives_up(cx: Ctx, job: Note, mut tx: Tx) -> super::db::Outcome {
    if job.text == "bad" {
        return fail(Fail::retire("no use"));
    }
    write(&mut tx, cx.id(), &job.text).await?;
    tx.done().ok()
}

async fn a_retired_head_lets_its_group_go_on(bed: &Bed) {
    let ids = puts(bed, "a", &["bad", "good"]).await;
    bed.work(bed.worker().handle(atomic(gives_up)), &ids).await;
    assert_eq!(bed.job(ids[0]).await.state, State::Case);
    assert_eq!(written(bed).await, ["good"]);
}

async fn or_stops_it_until_the_case_is_reopened(bed: &Bed) {
    let stops = Group::new("a").stop_when_retired();
    let bad = put(bed, stops, "bad").await;
    let behind = put(bed, "a", "good").await;
    bed.work(bed.worker().handle(atomic(gives_up)), &[bad]).await;
    let beside = put(bed, "b", "beside").await;
    bed.work(bed.worker().handle(atomic(gives_up)), &[beside]).await;
    assert_eq!(bed.job(behind).await.state, State::Waiting);
    bed.rowlock.operate().reopen(bad, "tess").await.unwrap();
    assert_eq!(bed.job(bad).await.state, State::Ready, "its turn it still is");
    bed.work(bed.worker().handle(atomic(note)), &[bad, behind]).await;
    assert_eq!(written(bed).await, ["beside", "bad", "good"]);
}

async fn a_reopened_job_whose_group_went_on_is_the_next_in_turn(bed: &Bed) {
    let bad = put(bed, "a", "bad").await;
    bed.work(bed.worker().handle(atomic(gives_up)), &[bad]).await;
    let later = puts(bed, "a", &["2", "3"]).await;
    bed.rowlock.operate().reopen(bad, "tess").await.unwrap();
    let places = [
        bed.job(bad).await.state,
        bed.job(later[0]).await.state,
        bed.job(later[1]).await.state,
    ];
    assert_eq!(places, [State::Waiting, State::Ready, State::Waiting]);
    bed.work(bed.worker().handle(atomic(note)), &[bad, later[0], later[1]])
        .await;
    assert_eq!(written(bed).await, ["2", "bad", "3"]);
    let alone = put(bed, "b", "bad").await;
    bed.work(bed.worker().handle(atomic(gives_up)), &[alone]).await;
    bed.rowlock.operate().reopen(alone, "tess").await.unwrap();
    assert_eq!(bed.job(alone).await.state, State::Ready, "nobody is in its group");
}

async fn an_expired_head_passes_the_turn_on(bed: &Bed) {
    let past = jiff::Timestamp::UNIX_EPOCH;
    let expired = bed
        .rowlock
        .enqueue_now(Note::new("late"))
        .group("a")
        .expires(past)
        .await;
    let (expired, next) = (expired.unwrap().id(), put(bed, "a", "next").await);
    bed.work(bed.worker().handle(atomic(note)), &[expired, next]).await;
    assert_eq!(bed.ends(expired).await, [Ended::Cancelled]);
    assert_eq!(written(bed).await, ["next"]);
}

async fn a_scheduled_head_holds_those_behind_it(bed: &Bed) {
    let soon = Duration::from_millis(300);
    let first = bed.rowlock.enqueue_now(Note::new("first")).group("a").after(soon).await;
    let ids = [first.unwrap().id(), put(bed, "a", "second").await];
    bed.work(bed.worker().handle(atomic(note)), &ids).await;
    assert_eq!(written(bed).await, ["first", "second"]);
}

async fn lose(bed: &Bed) {
    let begun = Arc::new(Notify::new());
    let at = begun.clone();
    let worker = bed.hasty_worker().handle(staged(move |_: Staged, _: Note| {
        let at = at.clone();
        async move {
            at.notify_one();
            std::future::pending().await
        }
    }));
    vanish(worker, async move { begun.notified().await }).await;
}

async fn a_head_whose_worker_is_lost_stays_the_head(bed: &Bed) {
    let ids = puts(bed, "a", &["1", "2"]).await;
    lose(bed).await;
    bed.work(bed.hasty_worker().handle(atomic(note)), &ids).await;
    assert_eq!(written(bed).await, ["1", "2"]);
    assert_eq!(bed.ends(ids[0]).await, [Ended::Lost, Ended::Done]);
}

async fn one_that_is_lost_for_the_last_time_lets_its_group_go_on(bed: &Bed) {
    let last = bed.rowlock.enqueue_now(Note::new("1")).group("a").attempts(1).await;
    let ids = [last.unwrap().id(), put(bed, "a", "2").await];
    lose(bed).await;
    bed.work(bed.hasty_worker().handle(atomic(note)), &ids).await;
    assert_eq!(
        (bed.job(ids[0]).await.state, written(bed).await),
        (State::Case, vec!["2".to_owned()])
    );
}

async fn a_paused_group_is_left_alone_until_it_is_resumed(bed: &Bed) {
    let group = Target::group("a");
    let operate = bed.rowlock.operate();
    let first = put(bed, "a", "1").await;
    assert!(operate.pause(&group, "tess").await.unwrap());
    assert!(!operate.pause(&group, "tess").await.unwrap(), "it was so before");
    let second = put(bed, "a", "2").await;
    let running = Running::start(bed.worker().handle(atomic(note)));
    let beside = put(bed, "b", "beside").await;
    until("another group to be done", async || {
        bed.job(beside).await.state == State::Finished
    })
    .await;
    let places = [bed.job(first).await.state, bed.job(second).await.state];
    assert_eq!(places, [State::Waiting, State::Waiting]);
    assert!(operate.resume(&group, "tess").await.unwrap());
    until("the rest", async || bed.job(second).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(written(bed).await, ["beside", "1", "2"]);
}

async fn a_pause_lets_the_head_end_and_holds_it_back_when_it_fails(bed: &Bed) {
    let group = Target::group("a");
    let (begun, go_on, fails) = (
        Arc::new(Notify::new()),
        Arc::new(Semaphore::new(0)),
        Arc::new(AtomicBool::new(true)),
    );
    let ids = puts(bed, "a", &["1", "2"]).await;
    let (at, gate, failing) = (begun.clone(), go_on.clone(), fails.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, gate, failing) = (at.clone(), gate.clone(), failing.clone());
        async move {
            at.notify_one();
            let _permit = gate.acquire().await;
            match failing.load(Ordering::SeqCst) {
                true => Err(Fail::retry_after(Duration::from_secs(2), "not yet")),
                false => cx.done().ok(),
            }
        }
    };
    let running = Running::start(bed.worker().handle(staged(handler)));
    begun.notified().await;
    assert!(bed.rowlock.operate().pause(&group, "tess").await.unwrap());
    assert_eq!(
        bed.job(ids[0]).await.state,
        State::Leased,
        "it had started, and goes on"
    );
    go_on.add_permits(1);
    until("it to be held back", async || {
        bed.job(ids[0]).await.state == State::Waiting
    })
    .await;
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retried]);
    fails.store(false, Ordering::SeqCst);
    go_on.add_permits(10);
    assert!(bed.rowlock.operate().resume(&group, "tess").await.unwrap());
    until("the rest", async || bed.job(ids[1]).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retried, Ended::Done], "it was first");
}

async fn a_worker_that_stops_leaves_the_turn_where_it_was(bed: &Bed) {
    let begun = Arc::new(Notify::new());
    let at = begun.clone();
    let worker = Worker::new(&bed.rowlock)
        .queue("default", 2)
        .grace(Duration::from_millis(50));
    let worker = worker.handle(staged(move |_: Staged, _: Note| {
        let at = at.clone();
        async move {
            at.notify_one();
            std::future::pending().await
        }
    }));
    let ids = puts(bed, "a", &["1", "2"]).await;
    let running = Running::start(worker);
    begun.notified().await;
    running.stop().await;
    bed.work(bed.worker().handle(atomic(note)), &ids).await;
    assert_eq!(written(bed).await, ["1", "2"]);
}

async fn a_stopped_group_goes_on_when_the_case_is_removed(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let rowlock = rigged.rig.rowlock();
    let stops = Group::new("a").stop_when_retired();
    let first = rowlock.enqueue_now(Other { n: 1 }).group(stops).await.unwrap().id();
    let second = rowlock.enqueue_now(Note::new("x")).group("a").await.unwrap().id();
    rigged.rig.run_once().await.unwrap();
    assert_eq!(rigged.state(first).await, Some(State::Case));
    assert_eq!(rigged.state(second).await, Some(State::Waiting));
    assert_eq!(rigged.pass(100 * DAY, Retention::new()).await, 1);
    rigged.rig.run_once().await.unwrap().expect_done();
    assert_eq!(rigged.state(second).await, Some(State::Finished));
}

/// As after a worker whose binary knew nothing of groups, or a head whose body was gone.
async fn upkeep_mends_a_group_whose_head_is_over(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let rowlock = rigged.rig.rowlock();
    let first = rowlock.enqueue_now(Note::new("1")).group("a").await.unwrap().id();
    let second = rowlock.enqueue_now(Note::new("2")).group("a").await.unwrap().id();
    let beside = rowlock.enqueue_now(Note::new("3")).group("b").await.unwrap().id();
    rigged
        .run(&format!("delete from rowlock.ready where id = {first}"))
        .await;
    rigged.pass(Duration::ZERO, Retention::new()).await;
    for _ in 0..2 {
        rigged.rig.run_once().await.unwrap().expect_done();
    }
    let states = (rigged.state(second).await, rigged.state(beside).await);
    assert_eq!(states, (Some(State::Finished), Some(State::Finished)));
}

mod tests {
    // A rig brings its own tables.
    super::super::cases!(bare: a_stopped_group_goes_on_when_the_case_is_removed, upkeep_mends_a_group_whose_head_is_over);
    super::super::cases!(
        a_head_that_fails_holds_its_group_while_it_is_tried_again,
        a_retired_head_lets_its_group_go_on,
        or_stops_it_until_the_case_is_reopened,
        a_reopened_job_whose_group_went_on_is_the_next_in_turn,
        an_expired_head_passes_the_turn_on,
        a_scheduled_head_holds_those_behind_it,
        a_head_whose_worker_is_lost_stays_the_head,
        one_that_is_lost_for_the_last_time_lets_its_group_go_on,
        a_paused_group_is_left_alone_until_it_is_resumed,
        a_pause_lets_the_head_end_and_holds_it_back_when_it_fails,
        a_worker_that_stops_leaves_the_turn_where_it_was,
    );
}
