//! Intents and replies against recovery, and resolutions against attempts: in any order, nothing is written by a
//! worker that has lost its lease, and nobody calls what somebody else is just finding out about.

use std::time::Duration;

use proof::bed::until;
use rowlock::{
    Ended, Job,
    postgres::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use crate::steps::{
    Held, claim, claim_alone, enqueue, expire,
    journal::{begin, end, known, reply, resolve},
    mark_dead, register,
    session::{Bed, Session},
};

const FAR_AHEAD_S: i64 = 60;

/// A worker that holds a job and has been declared dead, and is about to find out.
async fn doomed(bed: &mut Bed) -> Held {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap(), [1]);
    held
}

/// The same with its intent stored.
async fn doomed_outside(bed: &mut Bed) -> (Held, i64) {
    let held = doomed(bed).await;
    let no = begin(&mut bed.eye, held, false).await.unwrap();
    (held, no)
}

/// Another worker has the job.
async fn next_owner(bed: &mut Bed) -> Held {
    register(&mut bed.eye, 2).await;
    claim_alone(&mut bed.eye, 2).await.unwrap()[0]
}

async fn shown(bed: &mut Bed) -> Vec<String> {
    let states = sqlx::query_scalar("select state from rowlock.effects order by no");
    states.fetch_all(&mut bed.eye).await.unwrap()
}

/// Recovery first, its transaction still open; what a write of the worker says once it has ended.
async fn behind_an_expiry<T: Send + 'static>(
    bed: &mut Bed,
    held: Held,
    write: impl AsyncFnOnce(&mut PgConnection) -> T + Send + 'static,
    end: impl AsyncFnOnce(&mut Session),
) -> T {
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(expire(&mut recovery.pg).await, [held.id]);
    let worker = bed.session().await;
    let pid = worker.pid;
    let writing = worker.start(write);
    bed.blocked(pid).await;
    end(&mut recovery).await;
    writing.await.unwrap().1
}

async fn a_reply_keeps_recovery_away_until_it_has_committed(mut bed: Bed) {
    let (held, _) = doomed_outside(&mut bed).await;
    let mut worker = bed.session().await;
    worker.begin().await;
    assert!(reply(&mut worker.pg, held).await);

    assert_eq!(expire(&mut bed.eye).await, [0i64; 0], "the lease is held by the reply");
    worker.commit().await;
    assert_eq!(expire(&mut bed.eye).await, [held.id]);
    assert_eq!(shown(&mut bed).await, ["replied"]);

    let owner = next_owner(&mut bed).await;
    assert_eq!(
        begin(&mut bed.eye, owner, true).await,
        None,
        "replied: there is nothing to call"
    );
    assert_eq!(known(&mut bed.eye, owner).await.as_deref(), Some("replied"));
}

async fn a_reply_behind_an_expiry_that_commits_is_refused(mut bed: Bed) {
    let (held, _) = doomed_outside(&mut bed).await;
    let stored = behind_an_expiry(&mut bed, held, async move |pg| reply(pg, held).await, Session::commit).await;
    assert!(!stored);
    assert_eq!(known(&mut bed.eye, held).await, None);
    assert_eq!(shown(&mut bed).await, ["uncertain"]);
}

async fn a_reply_behind_an_expiry_that_rolls_back_stands(mut bed: Bed) {
    let (held, _) = doomed_outside(&mut bed).await;
    let stored = behind_an_expiry(&mut bed, held, async move |pg| reply(pg, held).await, Session::rollback).await;
    assert!(stored);
    assert_eq!(shown(&mut bed).await, ["replied"]);
}

async fn an_intent_behind_an_expiry_that_commits_leaves_no_trace(mut bed: Bed) {
    let held = doomed(&mut bed).await;
    let begun = behind_an_expiry(
        &mut bed,
        held,
        async move |pg| begin(pg, held, true).await,
        Session::commit,
    )
    .await;
    assert_eq!(begun, None);
    assert_eq!(known(&mut bed.eye, held).await, None);
    assert!(shown(&mut bed).await.is_empty());
}

async fn a_late_worker_can_write_nothing_to_the_new_owners_effect(mut bed: Bed) {
    let (late, no) = doomed_outside(&mut bed).await;
    assert_eq!(expire(&mut bed.eye).await, [late.id]);
    let owner = next_owner(&mut bed).await;
    assert_eq!(
        begin(&mut bed.eye, owner, true).await,
        Some(no),
        "called again under the same number"
    );

    let forged = Held {
        epoch: owner.epoch,
        ..late
    };
    for token in [late, forged] {
        for state in ["replied", "uncertain", "undone"] {
            assert!(!end(&mut bed.eye, token, state).await, "{state}");
        }
        assert_eq!(begin(&mut bed.eye, token, true).await, None);
    }
    assert_eq!(shown(&mut bed).await, ["in flight"]);
    assert!(reply(&mut bed.eye, owner).await);
    let tries = bed.count("select tries::bigint from rowlock.effect").await;
    assert_eq!((tries, shown(&mut bed).await), (2, vec!["replied".to_owned()]));
}

async fn an_intent_sent_twice_by_one_attempt_is_one_call(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    let mut first = bed.session().await;
    first.begin().await;
    let no = begin(&mut first.pg, held, false).await;
    // The first try's answer did not arrive; its commit is still to come.
    let second = bed.session().await;
    let pid = second.pid;
    let beginning = second.start(async move |pg| begin(pg, held, false).await);
    bed.blocked(pid).await;
    first.commit().await;

    assert_eq!(beginning.await.unwrap().1, no, "its own intent is no doubt");
    assert_eq!(bed.count("select tries::bigint from rowlock.effect").await, 1);
}

/// An effect in doubt whose job another worker has just claimed.
async fn in_doubt(bed: &mut Bed) -> (Held, i64) {
    let (late, no) = doomed_outside(bed).await;
    assert_eq!(expire(&mut bed.eye).await, [late.id]);
    (next_owner(bed).await, no)
}

/// A resolution first, its transaction still open; whether the new attempt may call once it has ended.
async fn begin_behind_a_resolution(
    bed: &mut Bed,
    state: &'static str,
    again: bool,
    end: impl AsyncFnOnce(&mut Session),
) -> (Held, Option<i64>) {
    let (owner, no) = in_doubt(bed).await;
    let mut person = bed.session().await;
    person.begin().await;
    assert!(resolve(&mut person.pg, no, state).await);
    let worker = bed.session().await;
    let pid = worker.pid;
    let beginning = worker.start(async move |pg| begin(pg, owner, again).await);
    bed.blocked(pid).await;
    end(&mut person).await;
    (owner, beginning.await.unwrap().1)
}

async fn an_intent_behind_a_resolution_as_happened_is_not_called(mut bed: Bed) {
    let (owner, begun) = begin_behind_a_resolution(&mut bed, "replied", true, Session::commit).await;
    assert_eq!(begun, None);
    assert_eq!(known(&mut bed.eye, owner).await.as_deref(), Some("replied"));
}

async fn an_intent_behind_a_resolution_as_not_happened_is_called_whatever_the_policy(mut bed: Bed) {
    let (_, begun) = begin_behind_a_resolution(&mut bed, "undone", false, Session::commit).await;
    assert!(begun.is_some());
    assert_eq!(shown(&mut bed).await, ["in flight"]);
}

async fn a_parked_intent_behind_a_resolution_that_rolls_back_stays_in_doubt(mut bed: Bed) {
    let (owner, begun) = begin_behind_a_resolution(&mut bed, "undone", false, Session::rollback).await;
    assert_eq!(begun, None);
    assert_eq!(known(&mut bed.eye, owner).await.as_deref(), Some("open"));
    assert_eq!(shown(&mut bed).await, ["uncertain"]);
}

async fn a_resolution_behind_a_new_attempts_intent_is_refused(mut bed: Bed) {
    let (owner, no) = in_doubt(&mut bed).await;
    let mut worker = bed.session().await;
    worker.begin().await;
    assert_eq!(begin(&mut worker.pg, owner, true).await, Some(no));

    let mut person = bed.session().await;
    person.begin().await;
    let pid = person.pid;
    let resolving = person.start(async move |pg| resolve(pg, no, "undone").await);
    bed.blocked(pid).await;
    worker.commit().await;

    let (mut person, resolved) = resolving.await.unwrap();
    person.commit().await;
    assert!(!resolved, "the call is under way");
    assert_eq!(shown(&mut bed).await, ["in flight"]);
    assert_eq!(bed.count("select count(*) from rowlock.audit").await, 0);
}

async fn two_resolutions_at_once_record_one(mut bed: Bed) {
    let (_, no) = in_doubt(&mut bed).await;
    let mut first = bed.session().await;
    first.begin().await;
    assert!(resolve(&mut first.pg, no, "replied").await);
    let mut second = bed.session().await;
    second.begin().await;
    let pid = second.pid;
    let resolving = second.start(async move |pg| resolve(pg, no, "undone").await);
    bed.blocked(pid).await;
    first.commit().await;

    let (mut second, resolved) = resolving.await.unwrap();
    second.commit().await;
    assert!(!resolved);
    assert_eq!(shown(&mut bed).await, ["replied"]);
    assert_eq!(bed.count("select count(*) from rowlock.audit").await, 1);
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", attempts = 1)]
struct Charge {
    url: String,
}

/// Breaks every idle connection of the engine while it is outside.
async fn charge(cx: Staged, job: Charge) -> Outcome {
    let paid = cx.effect("charge", async |_| {
        let mut pg = PgConnection::connect(&job.url).await?;
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where datname = current_database() and application_name = 'rowlock engine'";
        sqlx::query_scalar(cut).fetch_one(&mut pg).await
    });
    let cut: i64 = paid.park().await?;
    cx.done().result(&cut).ok()
}

async fn a_reply_outlives_the_connections_that_broke_during_the_call(bed: Bed) {
    let job = Charge { url: bed.url.clone() };
    let id = bed.rowlock.enqueue_now(job).await.unwrap().id();
    let worker = Worker::new(&bed.rowlock).queue("default", 1).handle(staged(charge));
    let counters = worker.counters();
    let settled = async || (counters.settled(Ended::Done) + counters.settled(Ended::Retired) == 1).then_some(());
    let stop = until("the job to be settled", Duration::from_secs(20), settled);
    worker.run_until(stop).await.unwrap();

    // The bed's own handle lost its connections too.
    let look = Rowlock::open(&bed.url).unwrap().observe();
    let job = look.job(id).await.unwrap().unwrap();
    assert_eq!((job.last_outcome, &job.last_error), (Some(Ended::Done), &None));
    assert!(job.result.unwrap().as_i64().unwrap() > 0, "no connection was cut");
}

races!(
    a_reply_outlives_the_connections_that_broke_during_the_call,
    a_reply_keeps_recovery_away_until_it_has_committed,
    a_reply_behind_an_expiry_that_commits_is_refused,
    a_reply_behind_an_expiry_that_rolls_back_stands,
    an_intent_behind_an_expiry_that_commits_leaves_no_trace,
    a_late_worker_can_write_nothing_to_the_new_owners_effect,
    an_intent_sent_twice_by_one_attempt_is_one_call,
    an_intent_behind_a_resolution_as_happened_is_not_called,
    an_intent_behind_a_resolution_as_not_happened_is_called_whatever_the_policy,
    a_parked_intent_behind_a_resolution_that_rolls_back_stays_in_doubt,
    a_resolution_behind_a_new_attempts_intent_is_refused,
    two_resolutions_at_once_record_one,
);
