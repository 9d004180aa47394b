//! The views: what is stuck and why, who holds it, what waits, and what was never answered, by plain SQL.

use std::{sync::Arc, time::Duration};

use rowlock::{Fail, JobId, State, atomic, observe::JobFilter, staged};
use tokio::sync::Notify;

use super::db::{Ctx, Staged, Tx};
use super::{Bed, LEASE, Note, Other, Running, fail, note, sql, until, vanish};

async fn rows<T>(bed: &Bed, text: &str) -> Vec<T>
where
    T: for<'r> sqlx::FromRow<'r, <super::db::Backend as sqlx::Database>::Row> + Send + Unpin,
{
    sqlx::query_as(sql(text))
        .fetch_all(&mut bed.conn().await)
        .await
        .unwrap()
}

async fn the_backlog_counts_each_place_and_names_the_oldest(bed: &Bed) {
    let hour = Duration::from_secs(3600);
    let put = |n: i64| bed.rowlock.enqueue_now(Other { n }).queue("mail");
    for n in 0..3 {
        put(n).await.unwrap().id();
    }
    put(9).priority(1).await.unwrap().id();
    bed.rowlock
        .enqueue_now(Note::new("later"))
        .after(hour)
        .await
        .unwrap()
        .id();
    bed.rowlock
        .enqueue_now(Note::new("waits"))
        .waits_for("x")
        .await
        .unwrap()
        .id();
    let found: Vec<(String, String, i64, i64, i64, i64)> = rows(
        bed,
        "select queue, kind, due, scheduled, waiting, leased + cases from rowlock.backlog
         where oldest_due_at is not null or due = 0 order by queue, kind",
    )
    .await;
    let expected = [("default", "note", 0, 1, 1, 0), ("mail", "other", 4, 0, 0, 0)];
    let expected = expected
        .map(|(queue, kind, due, later, waits, rest)| (queue.to_owned(), kind.to_owned(), due, later, waits, rest));
    assert_eq!(found, expected);
    assert_eq!(
        bed.count("select count(*) from rowlock.backlog where not more").await,
        2
    );
}

async fn a_backlog_beyond_the_bound_says_that_there_is_more(bed: &Bed) {
    bed.note("pattern").await;
    bed.run(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 100001)
         insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
         select r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.id + n.i, 0, 0, 3 from n cross join rowlock.ready r",
    )
    .await;
    let lanes = bed.rowlock.observe().status().await.unwrap().lanes;
    let [lane] = &lanes[..] else { panic!("{lanes:?}") };
    assert_eq!((lane.due, lane.scheduled, lane.more), (100_000, 0, true));
}

async fn what_is_held_shows_its_worker_and_whether_the_lease_is_over(bed: &Bed) {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, gate) = (begun.clone(), go_on.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, gate) = (at.clone(), gate.clone());
        async move {
            at.notify_one();
            gate.notified().await;
            cx.done().ok()
        }
    };
    let id = bed.note("x").await;
    let running = Running::start(bed.worker().name("rower-1").handle(staged(handler.clone())));
    begun.notified().await;
    let held = format!("select worker_name from rowlock.held where id = {id} and not expired");
    assert_eq!(rows::<(String,)>(bed, &held).await, [("rower-1".to_owned(),)]);
    let stuck = format!("select state, why, holder from rowlock.stuck where id = {id}");
    let runs = ("leased".to_owned(), "it runs".to_owned(), "rower-1".to_owned());
    assert_eq!(rows::<(String, String, String)>(bed, &stuck).await, [runs]);
    go_on.notify_one();
    until("it to be done", async || bed.job(id).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(bed.count("select count(*) from rowlock.held").await, 0);

    let lost = bed.note("y").await;
    let begun_again = begun.clone();
    vanish(bed.worker().lease(LEASE).handle(staged(handler)), async move {
        begun_again.notified().await
    })
    .await;
    until("its lease to be over", async || {
        bed.count(&format!(
            "select count(*) from rowlock.held where id = {lost} and expired"
        ))
        .await
            == 1
    })
    .await;
    let why = format!("select why from rowlock.stuck where id = {lost}");
    assert_eq!(
        rows::<(String,)>(bed, &why).await,
        [("its worker is silent".to_owned(),)]
    );
}

async fn what_is_stuck_says_why(bed: &Bed) {
    let put = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).group("a").await.unwrap().id();
    let (head, behind) = (put("1").await, put("2").await);
    let waits = bed
        .rowlock
        .enqueue_now(Note::new("w"))
        .waits_for("approval")
        .await
        .unwrap()
        .id();
    let tried = bed.note("tried").await;
    let case = bed.note("case").await;
    let handler = |_: Ctx, job: Note, _: Tx| async move {
        match job.text.as_str() {
            "case" => fail(Fail::retire("no stock")),
            _ => fail(Fail::retry_after(Duration::from_secs(3600), "not yet")),
        }
    };
    let running = Running::start(bed.worker().handle(atomic(handler)));
    until("all to have been tried", async || {
        bed.job(case).await.state == State::Case
            && bed.job(tried).await.attempt == 1
            && bed.job(head).await.attempt == 1
            && bed.count("select count(*) from rowlock.lease").await == 0
    })
    .await;
    running.stop().await;
    let why: Vec<(JobId, String, String, String)> = rows(
        bed,
        "select id, state, why, coalesce(last_error, '') from rowlock.stuck order by id",
    )
    .await;
    let says =
        |id: JobId, state: &str, why: &str, error: &str| (id, state.to_owned(), why.to_owned(), error.to_owned());
    assert_eq!(
        why,
        [
            says(head, "ready", "it was tried", "not yet"),
            says(behind, "waiting", &format!("it waits behind job {head}"), ""),
            says(waits, "waiting", "it waits for approval", ""),
            says(tried, "ready", "it was tried", "not yet"),
            says(case, "case", "no stock", "no stock"),
        ]
    );
    let later = "select count(*) from rowlock.stuck where state = 'ready' and eligible_at is not null and attempt = 1";
    assert_eq!(bed.count(later).await, 2);
}

async fn a_call_that_nobody_knows_of_is_a_doubt(bed: &Bed) {
    let handler = |cx: Staged, _: Note| async move {
        let call = cx.effect("charge", async |_| Err::<i64, _>("no answer"));
        let paid: i64 = call.park().await?;
        cx.done().result(&paid).ok()
    };
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    let doubts: Vec<(JobId, String, i32)> = rows(bed, "select id, name, tries from rowlock.doubts").await;
    assert_eq!(doubts, [(id, "charge".to_owned(), 1)]);
}

async fn jobs_of_a_state_are_listed_from_where_they_stand(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let tagged = async |n: i64| bed.rowlock.enqueue_now(Other { n }).tag("red").await.unwrap().id();
    let (ready, case, cancelled) = (tagged(1).await, tagged(2).await, tagged(3).await);
    let waits = bed
        .rowlock
        .enqueue_now(Note::new("w"))
        .waits_for("x")
        .tag("red")
        .await
        .unwrap()
        .id();
    let (done, again) = (bed.note("done").await, bed.note("again").await);
    operate.retire(case, None, "tess").await.unwrap();
    operate.cancel(cancelled, None, "tess").await.unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[done, again]).await;
    operate.rerun(again, None, "tess").await.unwrap();
    let list = async |state: State, tag: Option<&str>, kind: Option<&str>, below: Option<JobId>| -> Vec<JobId> {
        let filter = JobFilter::new().state(state).below(below);
        let filter = tag.into_iter().fold(filter, JobFilter::tag);
        let filter = kind.into_iter().fold(filter, JobFilter::kind);
        let jobs = bed.rowlock.observe().jobs(&filter).await.unwrap();
        assert!(jobs.iter().all(|job| job.state == state), "{jobs:?}");
        jobs.iter().map(|job| job.id).collect()
    };
    assert_eq!(list(State::Ready, None, None, None).await, [again, ready]);
    assert_eq!(list(State::Ready, Some("red"), None, None).await, [ready]);
    assert_eq!(list(State::Ready, None, Some("note"), None).await, [again]);
    assert_eq!(list(State::Waiting, None, None, None).await, [waits]);
    assert_eq!(list(State::Case, Some("red"), Some("other"), None).await, [case]);
    assert_eq!(list(State::Finished, None, None, None).await, [done, cancelled]);
    assert_eq!(list(State::Finished, None, None, Some(done)).await, [cancelled]);
    assert!(list(State::Leased, None, None, None).await.is_empty());
    bed.work(bed.worker().handle(atomic(note)), &[again]).await;
    assert_eq!(list(State::Finished, None, None, None).await, [again, done, cancelled]);
}

mod tests {
    super::super::cases!(
        the_backlog_counts_each_place_and_names_the_oldest,
        a_backlog_beyond_the_bound_says_that_there_is_more,
        what_is_held_shows_its_worker_and_whether_the_lease_is_over,
        what_is_stuck_says_why,
        a_call_that_nobody_knows_of_is_a_doubt,
        jobs_of_a_state_are_listed_from_where_they_stand,
    );
}
