//! Claim: order is a contract; what this worker cannot run stays untouched.

use std::{pin::Pin, sync::Arc, time::Duration};

use jiff::{Timestamp, ToSpan};
use rowlock::{Ended, Job, State, atomic, staged};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{Bed, Note, Other, Running, Seen, note, until};

type Body = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Notes what it was given, and is done.
fn recording(seen: &Seen) -> impl Fn(Staged, Note) -> Body + Send + Sync + 'static {
    let seen = seen.clone();
    move |cx, job| {
        seen.push(job.text);
        Box::pin(async { cx.done().ok() })
    }
}

async fn a_better_priority_is_always_served_first(bed: &Bed) {
    let mut ids = Vec::new();
    for priority in [5, 3, 1, 4, 2, 2, 5, 1] {
        let job = Note::new(&priority.to_string());
        ids.push(bed.rowlock.enqueue_now(job).priority(priority).await.unwrap().id());
    }
    let seen = Seen::default();
    bed.work(bed.single().handle(staged(recording(&seen))), &ids).await;
    assert_eq!(seen.all(), ["1", "1", "2", "2", "3", "4", "5", "5"]);
}

/// What one claim brought waits for a place in memory, and there too the order holds.
async fn jobs_claimed_together_start_in_order(bed: &Bed) {
    let mut ids = Vec::new();
    for n in 0..20 {
        let priority = 1 + n % 5;
        let job = Note::new(&format!("{priority} {n:02}"));
        ids.push(bed.rowlock.enqueue_now(job).priority(priority).await.unwrap().id());
    }
    let seen = Seen::default();
    bed.work(bed.single().prefetch(30).handle(staged(recording(&seen))), &ids)
        .await;
    let order = seen.all();
    assert!(order.is_sorted(), "{order:?}");
}

async fn within_a_priority_the_due_time_decides_and_then_the_id(bed: &Bed) {
    // Far enough ahead for the others to be due before them on any machine.
    let in_ms = |ms: i64| Timestamp::from_millisecond(Timestamp::now().as_millisecond() + ms).unwrap();
    let (first, last) = (in_ms(1000), in_ms(1100));
    let put = |text, at| bed.rowlock.enqueue_now(Note::new(text)).at(at);
    let later = put("later", last).await.unwrap().id();
    let soon = put("soon", first).await.unwrap().id();
    // One statement, one due time: only the id tells them apart.
    let mut ids = bed
        .rowlock
        .enqueue_all_now(["a", "b", "c", "d"].map(Note::new))
        .await
        .unwrap();
    ids.extend([later, soon]);
    until("everything to be due", async || {
        bed.rowlock.observe().status().await.unwrap().lanes[0].due == 6
    })
    .await;

    let seen = Seen::default();
    bed.work(bed.single().handle(staged(recording(&seen))), &ids).await;
    assert_eq!(seen.all(), ["a", "b", "c", "d", "soon", "later"]);
}

async fn a_future_job_is_not_claimed(bed: &Bed) {
    let future = bed
        .rowlock
        .enqueue_now(Note::new("future"))
        .after(Duration::from_secs(3600))
        .await
        .unwrap()
        .id();
    let due = bed.note("due").await;
    bed.work(bed.worker().handle(atomic(note)), &[due]).await;
    let job = bed.job(future).await;
    assert_eq!((job.state, job.attempt, job.epoch), (State::Ready, 0, 0));
    assert_eq!(bed.ledger().await, 1);
}

async fn a_job_is_claimed_when_its_time_comes(bed: &Bed) {
    let id = bed
        .rowlock
        .enqueue_now(Note::new("soon"))
        .after(Duration::from_millis(300))
        .await
        .unwrap()
        .id();
    let due = bed.job(id).await.due_at.unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let attempt = &bed.attempts(id).await[0];
    assert!(
        attempt.started_at >= due,
        "started {} before it was due {due}",
        attempt.started_at
    );
}

async fn a_backlog_of_one_kind_does_not_starve_another(bed: &Bed) {
    let mut ids = bed
        .rowlock
        .enqueue_all_now((0..6000).map(|_| Note::new("backlog")))
        .await
        .unwrap();
    ids.extend(bed.rowlock.enqueue_all_now((0..3).map(|n| Other { n })).await.unwrap());

    let seen = Seen::default();
    let others = seen.clone();
    let other = move |cx: Staged, _: Other| {
        others.push("other");
        async { cx.done().ok() }
    };
    bed.work(
        bed.single().handle(staged(recording(&seen))).handle(staged(other)),
        &ids,
    )
    .await;
    let last = seen.all().iter().rposition(|kind| kind == "other").unwrap();
    assert!(
        last < 3000,
        "the last of 3 jobs of the other kind ran at place {last} of 6003: not behind a claim or two, but behind the backlog"
    );
}

async fn an_unknown_kind_stays_untouched_and_visible(bed: &Bed) {
    let unknown = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let known = bed.note("known").await;
    bed.work(bed.worker().handle(atomic(note)), &[known]).await;

    let job = bed.job(unknown).await;
    assert_eq!((job.state, job.attempt, job.epoch), (State::Ready, 0, 0));
    assert!(bed.attempts(unknown).await.is_empty());
    let status = bed.rowlock.observe().status().await.unwrap();
    let lane = status.lanes.iter().find(|l| l.kind == "other").unwrap();
    assert_eq!((lane.due, lane.cases), (1, 0));
}

async fn a_queue_that_is_not_served_is_left_alone(bed: &Bed) {
    let elsewhere = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .queue("elsewhere")
        .await
        .unwrap()
        .id();
    let here = bed.note("here").await;
    bed.work(bed.worker().handle(atomic(note)), &[here]).await;
    assert_eq!((bed.job(elsewhere).await.state, bed.ledger().await), (State::Ready, 1));
}

/// A payload through three releases of the same kind.
#[derive(Serialize, Deserialize)]
struct Greet1 {
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Greet2 {
    first: String,
}

#[derive(Serialize, Deserialize)]
struct Greet3 {
    nobody_knows: bool,
}

impl Job for Greet1 {
    const KIND: &'static str = "greet";
}

impl Job for Greet2 {
    const KIND: &'static str = "greet";
    const VERSION: i32 = 2;

    fn decode(version: i32, payload: &str) -> Result<Greet2, String> {
        let text = |e: serde_json::Error| e.to_string();
        match version {
            1 => serde_json::from_str::<Greet1>(payload)
                .map(|old| Greet2 { first: old.name })
                .map_err(text),
            _ => serde_json::from_str(payload).map_err(text),
        }
    }
}

impl Job for Greet3 {
    const KIND: &'static str = "greet";
    const VERSION: i32 = 3;
}

async fn an_older_payload_is_decoded_and_a_newer_one_stays_untouched(bed: &Bed) {
    let newer = bed
        .rowlock
        .enqueue_now(Greet3 { nobody_knows: true })
        .await
        .unwrap()
        .id();
    let old = bed
        .rowlock
        .enqueue_now(Greet1 { name: "Ada".into() })
        .await
        .unwrap()
        .id();
    let own = bed
        .rowlock
        .enqueue_now(Greet2 { first: "Bob".into() })
        .await
        .unwrap()
        .id();

    let seen = Seen::default();
    let met = seen.clone();
    let greet = move |_: Ctx, job: Greet2, tx: Tx| {
        met.push(job.first);
        async { tx.done().ok() }
    };
    bed.work(bed.worker().handle(atomic(greet)), &[old, own]).await;

    let mut names = seen.all();
    names.sort();
    assert_eq!(names, ["Ada", "Bob"]);
    let job = bed.job(newer).await;
    assert_eq!((job.state, job.epoch, job.version), (State::Ready, 0, 3));
}

async fn an_expired_job_is_cancelled_unrun(bed: &Bed) {
    let now = Timestamp::now();
    let put = |text, at| bed.rowlock.enqueue_now(Note::new(text)).expires(at);
    let expired = put("too late", now - 1.second()).await.unwrap().id();
    let fresh = put("in time", now + 1.hour()).await.unwrap().id();
    bed.work(bed.worker().handle(atomic(note)), &[expired, fresh]).await;

    let job = bed.job(expired).await;
    assert_eq!((job.state, job.last_outcome), (State::Finished, Some(Ended::Cancelled)));
    assert_eq!(job.last_error.as_deref(), Some("expired before it started"));
    assert_eq!(bed.ends(fresh).await, [Ended::Done]);
    assert_eq!(bed.ledger().await, 1);
}

async fn the_attempt_is_counted_by_the_claim_itself(bed: &Bed) {
    let id = bed.note("held").await;
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, go) = (entered.clone(), leave.clone());
    let held = move |cx: Staged, _: Note| {
        let (at, go) = (at.clone(), go.clone());
        async move {
            at.notify_one();
            go.notified().await;
            cx.done().ok()
        }
    };
    let running = Running::start(bed.worker().handle(staged(held)));
    entered.notified().await;
    let job = bed.job(id).await;
    assert_eq!((job.state, job.attempt, job.epoch), (State::Leased, 1, 1));
    let worker = bed.rowlock.observe().status().await.unwrap().workers.remove(0);
    assert_eq!((job.worker, worker.leases), (Some(worker.id), 1));
    assert!(job.claimed_at.unwrap() >= job.created_at && job.due_at.is_none());

    leave.notify_one();
    until("the job to finish", async || bed.job(id).await.state == State::Finished).await;
    running.stop().await;
}

async fn a_missing_body_makes_one_case_and_does_not_fail_its_neighbours(bed: &Bed) {
    let mut ids = bed
        .rowlock
        .enqueue_all_now((0..5).map(|_| Note::new("x")))
        .await
        .unwrap();
    let broken = ids.remove(2);
    bed.run(&format!("delete from rowlock.job where id = {broken}")).await;
    let running = Running::start(bed.worker().handle(atomic(note)));
    for id in &ids {
        until("the others to finish", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
    }
    until("the case", async || {
        bed.rowlock.observe().case(broken).await.unwrap().is_some()
    })
    .await;
    running.stop().await;

    let case = bed.rowlock.observe().case(broken).await.unwrap().unwrap();
    assert_eq!(
        (case.reason.as_str(), case.kind.as_str()),
        ("the job's body is missing", "")
    );
    assert_eq!(bed.ledger().await, 4);
}

mod tests {
    super::super::cases!(
        a_better_priority_is_always_served_first,
        jobs_claimed_together_start_in_order,
        within_a_priority_the_due_time_decides_and_then_the_id,
        a_future_job_is_not_claimed,
        a_job_is_claimed_when_its_time_comes,
        a_backlog_of_one_kind_does_not_starve_another,
        an_unknown_kind_stays_untouched_and_visible,
        a_queue_that_is_not_served_is_left_alone,
        an_older_payload_is_decoded_and_a_newer_one_stays_untouched,
        an_expired_job_is_cancelled_unrun,
        the_attempt_is_counted_by_the_claim_itself,
        a_missing_body_makes_one_case_and_does_not_fail_its_neighbours,
    );
}
