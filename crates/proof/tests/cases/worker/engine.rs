//! Engine: what its watch, its line for slots and its turn for lone jobs owe to every other job of a worker.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use rowlock::{Ended, Error, Job, State, staged};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::db::{Ctx, Outcome, Staged, Tx, Worker};
use super::{AT_ONCE, Bed, LEASE, Note, Other, Running, note, until, vanish, write};

const ENDED_ITS_OWN: &str = "handler committed its own transaction";

/// Longer than the shortest, so that a loaded machine's pauses do not cut anybody off.
const EASY_LEASE: Duration = Duration::from_secs(3);

/// How long a job may take that has nothing but an idle worker before it.
const FEW_SECONDS: Duration = Duration::from_secs(6);

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "brief", time_limit = "300ms", attempts = 3)]
struct Brief {}

/// One handler of each queue at a time, and as many claimed ahead as is usual.
fn narrow(bed: &Bed) -> Worker {
    Worker::new(&bed.rowlock)
        .queue("default", 1)
        .lease(EASY_LEASE)
        .grace(Duration::from_secs(5))
}

async fn all_finished(bed: &Bed, ids: &[i64]) {
    for id in ids {
        until("the job to finish", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
    }
}

async fn notes(bed: &Bed, count: usize) -> Vec<i64> {
    let jobs = (0..count).map(|_| Note::new("x"));
    bed.rowlock.enqueue_all_now(jobs).await.unwrap()
}

/// Each returns at about the moment at which the watch finds it overdue: some before, some after, some in between.
async fn a_handler_that_committed_by_hand_and_returns_at_its_time_limit_is_never_retried(bed: &Bed) {
    // One writer: these take turns on SQLite.
    let jobs = if bed.database.is_sqlite() { 12 } else { 30 };
    let ids = bed.rowlock.enqueue_all_now((0..jobs).map(|_| Brief {})).await.unwrap();
    let handler = |cx: Ctx, _: Brief, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        sqlx::raw_sql("commit").execute(&mut *tx).await?;
        tokio::time::sleep(Duration::from_millis(285 + (cx.id() as u64 * 7) % 70)).await;
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler).backoff(AT_ONCE)), &ids)
        .await;
    for id in &ids {
        let mut ends = bed.ends(*id).await;
        // Handed back unrun is no attempt.
        ends.retain(|end| *end != Ended::Released);
        assert_eq!(ends, [Ended::Retired], "{:?}", bed.attempts(*id).await);
        let case = bed.rowlock.observe().case(*id).await.unwrap().unwrap();
        assert!(case.reason.starts_with(ENDED_ITS_OWN), "{}", case.reason);
    }
    assert_eq!(bed.ledger().await, jobs);
    assert_eq!(bed.count("select count(distinct job) from ledger").await, jobs);
}

async fn a_handler_that_committed_by_hand_and_is_cut_after_the_grace_becomes_a_case(bed: &Bed) {
    let id = bed.note("x").await;
    let committed = Arc::new(Notify::new());
    let at = committed.clone();
    let deaf = move |cx: Ctx, job: Note, mut tx: Tx| {
        let at = at.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            sqlx::raw_sql("commit").execute(&mut *tx).await?;
            at.notify_one();
            pending::<()>().await;
            tx.done().ok()
        }
    };
    let running = Running::start(
        bed.worker()
            .grace(Duration::from_millis(100))
            .handle(rowlock::atomic(deaf)),
    );
    committed.notified().await;
    running.stop().await;

    assert_eq!(
        (bed.job(id).await.state, bed.ends(id).await, bed.ledger().await),
        (State::Case, vec![Ended::Retired], 1)
    );
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(case.reason.starts_with(ENDED_ITS_OWN), "{}", case.reason);
}

/// Blocks its thread until it is let go.
struct Block {
    let_go: mpsc::Sender<()>,
    until: Arc<Mutex<mpsc::Receiver<()>>>,
    over: Arc<AtomicBool>,
}

impl Block {
    fn new() -> Block {
        let (let_go, until) = mpsc::channel();
        Block {
            let_go,
            until: Arc::new(Mutex::new(until)),
            over: Arc::default(),
        }
    }

    fn handler(&self) -> impl Fn(Staged, Brief) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> + use<> {
        let (until, over) = (self.until.clone(), self.over.clone());
        move |cx, _| {
            let (until, over) = (until.clone(), over.clone());
            Box::pin(async move {
                // In place, or tokio itself may stand still: the thread that blocks can be the one that polls for all.
                tokio::task::block_in_place(|| {
                    let _ = until.lock().unwrap().recv_timeout(Duration::from_secs(30));
                });
                over.store(true, Ordering::SeqCst);
                cx.done().ok()
            })
        }
    }
}

async fn a_hung_body_keeps_its_slot_and_the_next_jobs_go_to_an_idle_worker(bed: &Bed) {
    let put = bed.rowlock.enqueue_now(Brief {}).attempts(1);
    let hung = put.await.unwrap().id();
    let block = Block::new();
    let first = Running::start(
        narrow(bed)
            .handle(staged(block.handler()))
            .handle(rowlock::atomic(note)),
    );
    until("the hung one to be given up on", async || {
        bed.job(hung).await.state == State::Case
    })
    .await;
    let ids = notes(bed, 4).await;
    // Not a wait for a state: the first worker gets its chance to sit on them.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let held = bed.count("select count(*) from rowlock.lease").await;
    assert!(held <= 1, "{held} jobs claimed behind a body that does not end");

    let came = Instant::now();
    let second = Running::start(narrow(bed).handle(rowlock::atomic(note)));
    all_finished(bed, &ids).await;
    assert!(came.elapsed() < FEW_SECONDS, "they took {:?}", came.elapsed());
    assert!(!block.over.load(Ordering::SeqCst), "its slot was never free");
    block.let_go.send(()).unwrap();
    let (first, second) = (first.stop().await, second.stop().await);
    let done = |counters: &rowlock::Counters| counters.settled_of("note", Ended::Done);
    assert_eq!((done(&first), done(&second), bed.ledger().await), (0, 4, 4));
    assert_eq!((first.declared_dead(), bed.ends(hung).await), (0, vec![Ended::Retired]));
}

/// A staged handler that runs until it is let go, and says when it has begun and ended.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    let_go: Arc<Notify>,
    over: Arc<AtomicBool>,
}

impl Slow {
    fn handler(&self) -> impl Fn(Staged, Other) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> + use<> {
        let slow = self.clone();
        move |cx, _| {
            let slow = slow.clone();
            Box::pin(async move {
                slow.begun.notify_one();
                slow.let_go.notified().await;
                slow.over.store(true, Ordering::SeqCst);
                cx.done().ok()
            })
        }
    }
}

async fn jobs_claimed_ahead_behind_a_slow_handler_go_to_an_idle_worker(bed: &Bed) {
    let long = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let slow = Slow::default();
    let first = Running::start(narrow(bed).handle(staged(slow.handler())).handle(rowlock::atomic(note)));
    slow.begun.notified().await;
    let ids = notes(bed, 5).await;
    until("one to be claimed ahead", async || first.counters.claimed() == 2).await;

    let came = Instant::now();
    let second = Running::start(narrow(bed).handle(rowlock::atomic(note)));
    all_finished(bed, &ids).await;
    assert!(came.elapsed() < FEW_SECONDS, "they took {:?}", came.elapsed());
    assert!(!slow.over.load(Ordering::SeqCst), "the slow one still runs");
    slow.let_go.notify_one();
    all_finished(bed, &[long]).await;
    let (first, second) = (first.stop().await, second.stop().await);
    assert_eq!(second.settled_of("note", Ended::Done), 5);
    assert_eq!(
        (first.settled(Ended::Done), bed.ends(long).await),
        (1, vec![Ended::Done])
    );
    for id in ids {
        assert_eq!(bed.job(id).await.attempt, 1, "to be handed back burns no attempt");
    }
}

/// Something of the user's that cannot even be dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a guard's own fault");
    }
}

async fn a_handler_that_panics_while_it_is_dropped_at_its_time_limit_is_retried(bed: &Bed) {
    let atomic = bed.rowlock.enqueue_now(Brief {}).await.unwrap().id();
    let hang = |cx: Ctx, _: Brief, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        if cx.attempt() == 1 {
            let grenade = Grenade;
            pending::<()>().await;
            std::mem::forget(grenade);
        }
        tx.done().ok()
    };
    let after = bed.note("after").await;
    let worker = narrow(bed)
        .handle(rowlock::atomic(hang).backoff(AT_ONCE))
        .handle(rowlock::atomic(note));
    bed.work(worker, &[atomic, after]).await;
    assert_eq!(bed.ends(atomic).await, [Ended::Retried, Ended::Done]);
    let rows = |id: i64| format!("select count(*) from ledger where job = {id}");
    assert_eq!((bed.count(&rows(atomic)).await, bed.count(&rows(after)).await), (1, 1));
}

async fn a_handler_that_panics_while_it_is_dropped_after_the_grace_is_not_left_leased(bed: &Bed) {
    let last = bed.rowlock.enqueue_now(Other { n: 1 }).attempts(1).await.unwrap().id();
    let first = bed.rowlock.enqueue_now(Other { n: 2 }).attempts(2).await.unwrap().id();
    let begun = Arc::new(tokio::sync::Barrier::new(3));
    let at = begun.clone();
    let deaf = move |cx: Staged, _: Other| {
        let at = at.clone();
        async move {
            at.wait().await;
            let grenade = Grenade;
            pending::<()>().await;
            std::mem::forget(grenade);
            cx.done().ok()
        }
    };
    let running = Running::start(bed.worker().grace(Duration::from_millis(100)).handle(staged(deaf)));
    begun.wait().await;
    running.stop().await;

    assert_eq!(bed.count("select count(*) from rowlock.lease").await, 0);
    let seen = async |id| (bed.job(id).await.state, bed.ends(id).await);
    assert_eq!(seen(first).await, (State::Ready, vec![Ended::Retried]));
    assert_eq!(seen(last).await, (State::Case, vec![Ended::Retired]));
}

/// A worker that is gone with these jobs in its hands, so that they must run alone next.
async fn lose(bed: &Bed, jobs: usize) -> Vec<i64> {
    let ids = notes(bed, jobs).await;
    let begun = Arc::new(Notify::new());
    let at = begun.clone();
    let hang = move |cx: Staged, _: Note| {
        let at = at.clone();
        async move {
            at.notify_one();
            pending::<()>().await;
            cx.done().ok()
        }
    };
    let worker = bed.hasty_worker().prefetch(jobs).handle(staged(hang));
    let counters = worker.counters();
    let taken = async move {
        begun.notified().await;
        until("all of them to be taken", async || counters.claimed() >= jobs as u64).await;
    };
    vanish(worker, taken).await;
    ids
}

async fn jobs_that_must_run_alone_do_not_stop_the_others_behind_a_long_handler(bed: &Bed) {
    let alone = lose(bed, 4).await;
    let long = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let slow = Slow::default();
    let running = Running::start(
        bed.hasty_worker()
            .handle(staged(slow.handler()))
            .handle(rowlock::atomic(note)),
    );
    slow.begun.notified().await;
    until("the lost ones to be found", async || running.counters.expired() == 4).await;

    let mut waits = Vec::new();
    loop {
        let (put, ids) = (Instant::now(), notes(bed, 10).await);
        all_finished(bed, &ids).await;
        waits.push(put.elapsed());
        let left = "select (select count(*) from rowlock.ready where alone) \
                         + (select count(*) from rowlock.lease where alone)";
        if bed.count(left).await == 0 {
            break;
        }
    }
    all_finished(bed, &alone).await;
    let longest = waits.iter().max().unwrap();
    assert!(*longest < 2 * LEASE, "the others waited {longest:?}");
    assert!(!slow.over.load(Ordering::SeqCst), "the long one still runs");
    slow.let_go.notify_one();
    all_finished(bed, &[long]).await;
    running.stop().await;
    for id in alone {
        assert_eq!(bed.ends(id).await, [Ended::Lost, Ended::Done]);
    }
}

/// Clearing the hands takes longer than such a job does: one at a time, they would wait until all the others are
/// through.
async fn many_left_by_a_dead_worker_are_done_before_a_long_line_of_others(bed: &Bed) {
    const LEFT: usize = 60;
    let alone = lose(bed, LEFT).await;
    let others = (0..4_000).map(|n| Other { n });
    bed.rowlock.enqueue_all_now(others).await.unwrap();
    let a_while = |cx: Staged, _job: Other| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cx.done().ok()
    };
    let running = Running::start(bed.hasty_worker().handle(staged(a_while)).handle(rowlock::atomic(note)));
    all_finished(bed, &alone).await;
    let left = bed.count("select count(*) from rowlock.ready where not alone").await;
    running.stop().await;
    assert!(left > 0, "the others were done first");
    for id in alone {
        assert_eq!(bed.ends(id).await, [Ended::Lost, Ended::Done]);
    }
}

async fn a_prefetch_beyond_reason_is_refused_with_a_sentence(bed: &Bed) {
    let with = |jobs| {
        bed.worker()
            .prefetch(jobs)
            .handle(rowlock::atomic(note))
            .run_until(async {})
    };
    match with(10_001).await {
        Err(Error::Config(sentence)) => {
            assert_eq!(sentence, "prefetch: out of range (at most 10000 jobs)");
        }
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(bed.count("select count(*) from rowlock.worker").await, 0);
    with(10_000).await.unwrap();
}

mod tests {
    super::super::cases!(
        a_handler_that_committed_by_hand_and_returns_at_its_time_limit_is_never_retried,
        a_handler_that_committed_by_hand_and_is_cut_after_the_grace_becomes_a_case,
        a_hung_body_keeps_its_slot_and_the_next_jobs_go_to_an_idle_worker,
        jobs_claimed_ahead_behind_a_slow_handler_go_to_an_idle_worker,
        a_handler_that_panics_while_it_is_dropped_at_its_time_limit_is_retried,
        a_handler_that_panics_while_it_is_dropped_after_the_grace_is_not_left_leased,
        jobs_that_must_run_alone_do_not_stop_the_others_behind_a_long_handler,
        many_left_by_a_dead_worker_are_done_before_a_long_line_of_others,
        a_prefetch_beyond_reason_is_refused_with_a_sentence,
    );
}
