//! Worker: the loop in normal operation, from its settings to its stop.

use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rowlock::{Ended, Error, Event, Retention, State, atomic};
use sqlx::Connection;
use tokio::sync::{Barrier, Notify};

use super::db::{Ctx, Outcome, Rowlock, Staged, Tx, Worker};
use super::{AT_ONCE, Bed, LEASE, Note, Other, Running, Seen, fail, note, until, write};

async fn a_stop_waits_for_what_runs_and_releases_what_has_not_started(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now((0..4).map(|_| Note::new("x")))
        .await
        .unwrap();
    let started = Seen::default();
    let entered = started.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        entered.push(cx.id().to_string());
        async move {
            cx.stopping().await;
            assert!(cx.is_stopping());
            write(&mut tx, cx.id(), &job.text).await?;
            tx.done().ok()
        }
    };
    let one = Worker::new(&bed.rowlock)
        .queue("default", 1)
        .prefetch(9)
        .handle(rowlock::atomic(handler));
    let running = Running::start(one);
    until("all to be claimed and one to run", async || {
        running.counters.claimed() == 4 && started.all().len() == 1
    })
    .await;
    let counters = running.stop().await;

    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Released)),
        (1, 3)
    );
    assert_eq!((started.all().len(), bed.ledger().await), (1, 1));
    for id in ids.iter().filter(|id| !started.all().contains(&id.to_string())) {
        let job = bed.job(*id).await;
        assert_eq!(
            (job.state, job.attempt, job.epoch),
            (State::Ready, 0, 1),
            "no attempt burnt"
        );
        assert_eq!(job.last_outcome, Some(Ended::Released));
        assert_eq!(job.last_error.as_deref(), Some("worker stopped before it started"));
    }
    let gone = bed.rowlock.observe().status().await.unwrap().workers;
    assert!(
        gone.iter().all(|w| w.dead && w.leases == 0),
        "it said goodbye and holds nothing"
    );
    bed.work(bed.worker().handle(rowlock::atomic(note)), &ids).await;
    assert_eq!(bed.ledger().await, 4);
}

async fn past_the_grace_a_handler_is_cut_and_its_job_run_again_by_the_next_worker(bed: &Bed) {
    let id = bed.note("x").await;
    let entered = Arc::new(Notify::new());
    let at = entered.clone();
    // Staged: on SQLite a transaction held for so long would be cut for that alone.
    let deaf = move |cx: Staged, _: Note| {
        let at = at.clone();
        async move {
            at.notify_one();
            pending::<()>().await;
            cx.done().ok()
        }
    };
    let running = Running::start(
        bed.worker()
            .grace(Duration::from_millis(100))
            .handle(rowlock::staged(deaf)),
    );
    entered.notified().await;
    let stopped = Instant::now();
    running.stop().await;
    assert!(stopped.elapsed() < LEASE, "the stop took {:?}", stopped.elapsed());

    let job = bed.job(id).await;
    assert_eq!(
        (job.state, job.attempt, job.last_outcome),
        (State::Ready, 1, Some(Ended::Retried))
    );
    assert_eq!(
        job.last_error.as_deref(),
        Some("worker stopped before the handler finished")
    );
    bed.work(bed.worker().handle(rowlock::atomic(note)), &[id]).await;
    assert_eq!(
        (bed.ends(id).await, bed.ledger().await),
        (vec![Ended::Retried, Ended::Done], 1)
    );
}

/// How many handlers of a queue run at the same time, now and at most.
#[derive(Default)]
struct Crowd {
    now: [AtomicUsize; 2],
    most: [AtomicUsize; 2],
}

async fn crowd(cx: Staged<Crowd>, _: Note) -> Outcome {
    let queue = usize::from(cx.queue() == "b");
    let now = cx.state().now[queue].fetch_add(1, Ordering::SeqCst) + 1;
    cx.state().most[queue].fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    cx.state().now[queue].fetch_sub(1, Ordering::SeqCst);
    let most = cx.state().most[queue].load(Ordering::SeqCst);
    cx.done().result(&most).ok()
}

async fn each_queue_keeps_to_its_own_concurrency(bed: &Bed) {
    let mut ids = bed
        .rowlock
        .enqueue_all_now((0..15).map(|_| Note::new("x")))
        .queue("a")
        .await
        .unwrap();
    ids.extend(
        bed.rowlock
            .enqueue_all_now((0..15).map(|_| Note::new("x")))
            .queue("b")
            .await
            .unwrap(),
    );
    let worker = Worker::new(&bed.rowlock).queue("a", 2).queue("b", 5);
    bed.work(worker.state(Crowd::default()).handle(rowlock::staged(crowd)), &ids)
        .await;

    let mut most: HashMap<String, u64> = HashMap::new();
    for id in ids {
        let job = bed.job(id).await;
        let seen = most.entry(job.queue).or_default();
        *seen = job.result.unwrap().as_u64().unwrap().max(*seen);
    }
    assert_eq!(most, HashMap::from([("a".into(), 2), ("b".into(), 5)]));
}

struct App {
    greeting: &'static str,
}

async fn several_kinds_share_one_typed_state(bed: &Bed) {
    let a = bed.note("x").await;
    let b = bed.rowlock.enqueue_now(Other { n: 3 }).await.unwrap().id();
    let atomic = |cx: Ctx<App>, _: Note, tx: Tx| async move { tx.done().result(&cx.state().greeting).ok() };
    let staged = |cx: Staged<App>, job: Other| async move {
        let said = format!("{} {}", cx.state().greeting, job.n);
        cx.done().result(&said).ok()
    };
    let counters = bed
        .work(
            bed.worker()
                .state(App { greeting: "hi" })
                .handle(rowlock::atomic(atomic))
                .handle(rowlock::staged(staged)),
            &[a, b],
        )
        .await;
    assert_eq!(bed.job(a).await.result, Some("hi".into()));
    assert_eq!(bed.job(b).await.result, Some("hi 3".into()));
    assert_eq!(counters.settled_of("note", Ended::Done), 1);
    assert_eq!(counters.settled_of("other", Ended::Done), 1);
}

async fn polling_alone_finds_the_jobs(bed: &Bed) {
    let running = Running::start(bed.worker().poll_only().handle(rowlock::atomic(note)));
    until("the worker to register", async || {
        bed.count("select count(*) from rowlock.worker").await == 1
    })
    .await;
    let id = bed.note("x").await;
    until("the job to finish", async || bed.job(id).await.state == State::Finished).await;
    running.stop().await;
}

/// By polling alone it would take 300 ms or more at this point: the pace has slowed down to that.
async fn a_commit_wakes_an_idle_worker_at_once(bed: &Bed) {
    let (seen, arrived) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
    let (at, here) = (seen.clone(), arrived.clone());
    let handler = move |_: Ctx, _: Note, tx: Tx| {
        *at.lock().unwrap() = Some(Instant::now());
        here.notify_one();
        async { tx.done().ok() }
    };
    let running = Running::start(bed.worker().handle(rowlock::atomic(handler)));
    let mut conn = bed.conn().await;
    let mut waits = Vec::new();
    for _ in 0..4 {
        let mut tx = conn.begin().await.unwrap();
        let _ = bed.rowlock.enqueue(&mut *tx, Note::new("x")).await.unwrap();
        tx.commit().await.unwrap();
        let committed = Instant::now();
        arrived.notified().await;
        let started = seen.lock().unwrap().take().unwrap();
        waits.push(started.saturating_duration_since(committed));
        // Not a wait for a state: the worker must have been idle for a while.
        tokio::time::sleep(Duration::from_millis(560)).await;
    }
    running.stop().await;
    // The first one met a worker that was only starting, and one of the others may meet a busy machine.
    let prompt = waits[1..].iter().filter(|w| **w < Duration::from_millis(200)).count();
    assert!(prompt >= 2, "{waits:?}");
}

/// Job, attempt, how it ended, and whether that could be read from the database.
type Told = (i64, i32, Ended, bool);

async fn one_event_per_attempt_comes_after_its_commit(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["fine", "again", "batch"].map(Note::new))
        .await
        .unwrap();
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let (telling, url) = (told.clone(), bed.database.url.clone());
    let listener = move |event: &Event| {
        let Event::Settled { id, attempt, ended, .. } = event else {
            return;
        };
        // What the event says must be readable by anybody, on any connection, by now.
        let (id, attempt, url) = (*id, *attempt, url.clone());
        let read = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async { Rowlock::open(&url).unwrap().observe().attempts(id).await.unwrap() })
        });
        let seen = read
            .join()
            .unwrap()
            .iter()
            .any(|a| (a.attempt, a.outcome) == (attempt, *ended));
        telling.lock().unwrap().push((id, attempt, *ended, seen));
    };
    let handler = |cx: Ctx, job: Note, tx: Tx| async move {
        if job.text == "again" && cx.attempt() == 1 {
            return fail("once more");
        }
        tx.done().ok()
    };
    let counters = bed
        .work(
            bed.worker()
                .on_event(listener)
                .handle(rowlock::atomic(handler).backoff(AT_ONCE)),
            &ids,
        )
        .await;

    let mut told = told.lock().unwrap().clone();
    told.sort_by_key(|(id, attempt, ..)| (*id, *attempt));
    let done = Ended::Done;
    let expected = [
        (ids[0], 1, done, true),
        (ids[1], 1, Ended::Retried, true),
        (ids[1], 2, done, true),
        (ids[2], 1, done, true),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        (
            counters.claimed(),
            counters.settled(done),
            counters.settled(Ended::Retried)
        ),
        (4, 3, 1)
    );
}

async fn a_listener_that_panics_harms_nobody(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now((0..5).map(|_| Note::new("x")))
        .await
        .unwrap();
    let worker = bed
        .worker()
        .on_event(|_| panic!("a listener's own fault"))
        .handle(rowlock::atomic(note));
    let counters = bed.work(worker, &ids).await;
    assert_eq!((bed.ledger().await, counters.settled(Ended::Done)), (5, 5));
}

async fn two_workers_share_the_work(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now((0..2).map(|n| Other { n })).await.unwrap();
    let meet = Arc::new(Barrier::new(2));
    let worker = || {
        let meet = meet.clone();
        let handler = move |cx: Staged, _: Other| {
            let meet = meet.clone();
            async move {
                meet.wait().await;
                cx.done().ok()
            }
        };
        Running::start(bed.single().handle(rowlock::staged(handler)))
    };
    // Each takes one job at a time, so the two can only meet in two workers.
    let (first, second) = (worker(), worker());
    for id in ids {
        until("both jobs to meet", async || bed.job(id).await.state == State::Finished).await;
    }
    let claimed = (first.stop().await.claimed(), second.stop().await.claimed());
    assert_eq!(claimed, (1, 1));
}

async fn settings_that_cannot_work_are_refused_with_a_sentence(bed: &Bed) {
    let refusal = async |worker: Worker| match worker.run_until(async {}).await {
        Err(Error::Config(sentence)) => sentence,
        Err(Error::Invalid { field, problem, .. }) => format!("{field}: {problem}"),
        other => panic!("not refused: {other:?}"),
    };
    let new = || Worker::new(&bed.rowlock);
    let with = |queue: &str, n| new().queue(queue, n).handle(rowlock::atomic(note));
    let second = Duration::from_secs(1);
    assert_eq!(
        refusal(with("q", 1).lease(second)).await,
        "lease 1s is out of range (2 s to 1 h, default 15 s)"
    );
    let nothing = "the worker has no queue or no handler; add .queue(…) and .handle(…)";
    assert_eq!(refusal(new().handle(rowlock::atomic(note))).await, nothing);
    assert_eq!(refusal(new().queue("q", 1)).await, nothing);
    assert_eq!(
        refusal(with("q", 1).handle(rowlock::atomic(note))).await,
        "kind \"note\" has two handlers; remove one"
    );
    assert_eq!(
        refusal(with("q", 1).queue("q", 2)).await,
        "queue \"q\" is added twice; remove one"
    );
    assert_eq!(
        refusal(with("q", 0)).await,
        "queue \"q\": concurrency 0 is out of range (1 to 10000)"
    );
    assert!(
        refusal(with("two words", 1))
            .await
            .starts_with("queue: \"two words\" is not")
    );
    assert!(
        refusal(with("q", 1).retention(Retention::new().history(second)))
            .await
            .starts_with("retention: ")
    );
    assert_eq!(
        bed.count("select count(*) from rowlock.worker").await,
        0,
        "refused before it registered"
    );
}

async fn a_grace_period_without_end_is_one(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |_: Ctx, _: Note, mut tx: Tx| async move {
        tx.after_commit(async { Ok::<(), std::io::Error>(()) });
        tx.done().ok()
    };
    let worker = bed.worker().grace(Duration::MAX).handle(rowlock::atomic(handler));
    bed.work(worker, &[id]).await;
    assert_eq!(
        bed.count("select count(*) from rowlock.worker").await,
        0,
        "it said goodbye"
    );
}

async fn what_runs_alongside_a_worker_is_dropped_once_it_has_stopped(bed: &Bed) {
    let (alive, looked) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let (held, looks) = (alive.clone(), looked.clone());
    let worker = bed
        .worker()
        .handle(atomic(note))
        .alongside(async move |rowlock: Rowlock| {
            let _held = held;
            rowlock.observe().status().await.unwrap();
            looks.fetch_add(1, Ordering::SeqCst);
            pending().await
        });
    let running = Running::start(worker);
    until("it to look at the queues", async || looked.load(Ordering::SeqCst) == 1).await;
    assert_eq!(Arc::strong_count(&alive), 2, "it goes on while the worker does");
    running.stop().await;
    until("it to be dropped", async || Arc::strong_count(&alive) == 1).await;
}

mod tests {
    super::super::cases!(
        a_stop_waits_for_what_runs_and_releases_what_has_not_started,
        past_the_grace_a_handler_is_cut_and_its_job_run_again_by_the_next_worker,
        each_queue_keeps_to_its_own_concurrency,
        several_kinds_share_one_typed_state,
        polling_alone_finds_the_jobs,
        a_commit_wakes_an_idle_worker_at_once,
        one_event_per_attempt_comes_after_its_commit,
        a_listener_that_panics_harms_nobody,
        two_workers_share_the_work,
        settings_that_cannot_work_are_refused_with_a_sentence,
        a_grace_period_without_end_is_one,
        what_runs_alongside_a_worker_is_dropped_once_it_has_stopped,
    );
}
