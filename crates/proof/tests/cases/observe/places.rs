//! Observe: what is where, who has it, how often it failed and why. Reads only.

use std::{sync::Arc, time::Duration};

use rowlock::{
    Ended, Fail, JobId, State, atomic,
    observe::{CaseFilter, JobFilter},
    staged,
};
use tokio::sync::Notify;

use super::db::{Ctx, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Other, Running, fail, note, until};

const HOUR: Duration = Duration::from_secs(3600);

async fn status_counts_each_place_per_queue_and_kind(bed: &Bed) {
    assert!(bed.rowlock.observe().status().await.unwrap().lanes.is_empty());
    let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text));
    let case = put("case").await.unwrap().id();
    let held = put("held").await.unwrap().id();
    let _ = put("later").after(HOUR).await.unwrap();
    bed.rowlock
        .enqueue_all_now((0..2).map(|n| Other { n }))
        .queue("mail")
        .await
        .unwrap();
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, go) = (entered.clone(), leave.clone());
    let handler = move |cx: Staged, job: Note| {
        let (at, go) = (at.clone(), go.clone());
        async move {
            if job.text == "case" {
                return fail(Fail::retire("no"));
            }
            at.notify_one();
            go.notified().await;
            cx.done().ok()
        }
    };
    let running = Running::start(bed.hasty_worker().name("worker one").handle(staged(handler)));
    entered.notified().await;
    until("the case", async || bed.job(case).await.state == State::Case).await;

    let status = bed.rowlock.observe().status().await.unwrap();
    let counts =
        |l: &rowlock::observe::LaneStatus| (l.queue.clone(), l.kind.clone(), l.due, l.scheduled, l.leased, l.cases);
    let lanes: Vec<_> = status.lanes.iter().map(counts).collect();
    let expected = [
        ("default".into(), "note".into(), 0, 1, 1, 1),
        ("mail".into(), "other".into(), 2, 0, 0, 0),
    ];
    assert_eq!(lanes, expected);
    assert_eq!(status.lanes[0].oldest_due_ms, None);
    assert!(
        status.lanes[1]
            .oldest_due_ms
            .is_some_and(|ms| (0..20_000).contains(&ms))
    );
    let worker = &status.workers[0];
    assert_eq!(
        (status.workers.len(), worker.name.as_str(), worker.leases),
        (1, "worker one", 1)
    );
    assert!(!worker.dead && worker.lease_ms == 2000 && (0..2000).contains(&worker.beat_age_ms));

    leave.notify_one();
    until("the held job", async || bed.job(held).await.state == State::Finished).await;
    running.stop().await;
    let gone = bed.rowlock.observe().status().await.unwrap().workers;
    assert!(gone.iter().all(|w| w.dead && w.leases == 0), "it said goodbye");
}

async fn jobs_are_listed_newest_first_narrowed_and_page_by_page(bed: &Bed) {
    let notes = bed
        .rowlock
        .enqueue_all_now((0..5).map(|_| Note::new("x")))
        .tag("red")
        .await
        .unwrap();
    let others = bed
        .rowlock
        .enqueue_all_now((0..5).map(|n| Other { n }))
        .queue("mail")
        .tag("blue")
        .await
        .unwrap();
    bed.work(bed.worker().handle(atomic(note)), &notes).await;

    let list = async |filter: JobFilter| -> Vec<JobId> {
        let jobs = bed.rowlock.observe().jobs(&filter).await.unwrap();
        jobs.iter().map(|j| j.id).collect()
    };
    let newest = |ids: &[JobId]| ids.iter().rev().copied().collect::<Vec<_>>();
    let all = JobFilter::new();
    let by_queue = |queue: &str| JobFilter::new().queue(queue);
    let by_tag = |tag: &str| JobFilter::new().tag(tag);
    assert_eq!(
        list(all.clone()).await,
        newest(&[notes.clone(), others.clone()].concat())
    );
    assert_eq!(list(by_queue("mail")).await, newest(&others));
    assert!(list(by_queue("nowhere")).await.is_empty());
    assert_eq!(list(by_tag("red")).await, newest(&notes));
    assert_eq!(list(all.clone().kind("other")).await, newest(&others));
    for (state, ids) in [
        (State::Ready, &others[..]),
        (State::Finished, &notes[..]),
        (State::Case, &[]),
    ] {
        assert_eq!(list(all.clone().state(state)).await, newest(ids));
    }
    let (mut pages, mut below) = (Vec::new(), None);
    loop {
        let page = list(all.clone().below(below).limit(3)).await;
        let Some(last) = page.last() else { break };
        below = Some(*last);
        pages.push(page);
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
    assert_eq!(pages.concat(), list(all).await);
}

async fn a_job_shows_its_state_and_what_belongs_to_it(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["done", "case", "again"].map(Note::new))
        .await
        .unwrap();
    let handler = |_: Ctx, job: Note, tx: Tx| async move {
        match job.text.as_str() {
            "done" => tx.done().result(&1).ok(),
            "case" => fail(Fail::retire("given up")),
            _ => fail(Fail::retry_after(HOUR, "not yet")),
        }
    };
    bed.work_attempts(bed.worker().handle(atomic(handler)), ids[2], 1).await;
    until("the others", async || {
        bed.attempts(ids[0]).await.len() + bed.attempts(ids[1]).await.len() == 2
    })
    .await;

    let [done, case, again] = [bed.job(ids[0]).await, bed.job(ids[1]).await, bed.job(ids[2]).await];
    assert_eq!(
        (done.state, done.result, done.last_error),
        (State::Finished, Some(1.into()), None)
    );
    assert_eq!(
        (case.state, case.last_error.as_deref(), case.due_at),
        (State::Case, Some("given up"), None)
    );
    assert_eq!(
        (again.state, again.last_error.as_deref()),
        (State::Ready, Some("not yet"))
    );
    assert_eq!((again.attempt, again.epoch, again.worker), (1, 1, None));
    assert!(again.due_at > again.last_ended_at);
    assert!([done.due_at, case.due_at].iter().all(Option::is_none));
    assert!(bed.rowlock.observe().job(4711).await.unwrap().is_none());
    assert!(bed.attempts(4711.into()).await.is_empty());
}

async fn attempts_come_oldest_first_with_their_times_and_worker(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Ctx, _: Note, tx: Tx| async move {
        match cx.attempt() {
            3 => tx.done().ok(),
            n => fail(format!("attempt {n}")),
        }
    };
    bed.work(bed.worker().handle(atomic(handler).backoff(AT_ONCE)), &[id])
        .await;
    let attempts = bed.attempts(id).await;
    let numbers: Vec<_> = attempts.iter().map(|a| (a.epoch, a.attempt, a.outcome)).collect();
    assert_eq!(
        numbers,
        [(1, 1, Ended::Retried), (2, 2, Ended::Retried), (3, 3, Ended::Done)]
    );
    assert_eq!(attempts[1].error.as_deref(), Some("attempt 2"));
    assert!(
        attempts
            .iter()
            .all(|a| a.started_at <= a.ended_at && a.worker == attempts[0].worker)
    );
    assert!(attempts.is_sorted_by_key(|a| a.ended_at));
}

async fn cases_are_listed_newest_first(bed: &Bed) {
    let retire = |_: Ctx, job: Note, _tx: Tx| async move { fail(Fail::retire(job.text)) };
    let mut ids = Vec::new();
    for text in ["first", "second", "third"] {
        ids.push(bed.note(text).await);
        bed.work(bed.worker().handle(atomic(retire)), &ids).await;
    }
    let cases = bed.rowlock.observe().cases(&CaseFilter::new().limit(2)).await.unwrap();
    assert_eq!(
        cases.iter().map(|c| c.reason.as_str()).collect::<Vec<_>>(),
        ["third", "second"]
    );
    assert!(bed.rowlock.observe().case(4711).await.unwrap().is_none());
}

mod tests {
    super::super::cases!(
        status_counts_each_place_per_queue_and_kind,
        jobs_are_listed_newest_first_narrowed_and_page_by_page,
        a_job_shows_its_state_and_what_belongs_to_it,
        attempts_come_oldest_first_with_their_times_and_worker,
        cases_are_listed_newest_first,
    );
}
