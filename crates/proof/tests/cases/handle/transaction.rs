//! Handle: whatever user code does with its transaction, the engine keeps the last word.

use std::sync::Arc;

use rowlock::{Admin, Ended, Fail, Job, NamedJob, State};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::sync::{Mutex, Notify, mpsc};

use super::db::{Ctx, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Other, Running, fail, note, until, write};

/// What a handler that ended its own transaction becomes.
const ENDED_ITS_OWN: &str = "handler committed its own transaction";

async fn an_sql_error_inside_the_handler_is_recorded_and_retried(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if cx.attempt() == 1 {
            // The ledger's note may not be null: on PostgreSQL the whole transaction is spoilt now.
            sqlx::query("insert into ledger (job, note) values (1, null)")
                .execute(&mut *tx)
                .await?;
        }
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    let error = bed.attempts(id).await[0].error.clone().unwrap();
    assert!(error.to_lowercase().contains("null"), "{error}");
    assert_eq!(bed.ledger().await, 1);
}

async fn a_panic_is_caught_and_recorded_with_its_text(bed: &Bed) {
    let atomic = bed.note("a").await;
    let staged = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        assert!(cx.attempt() > 1, "boom in attempt {}", cx.attempt());
        tx.done().ok()
    };
    let outside = |cx: Staged, _: Other| async move {
        if cx.attempt() == 1 {
            panic!("boom outside");
        }
        cx.done().ok()
    };
    let worker = bed
        .worker()
        .handle(rowlock::atomic(handler).backoff(AT_ONCE))
        .handle(rowlock::staged(outside).backoff(AT_ONCE));
    bed.work(worker, &[atomic, staged]).await;

    for (id, text) in [(atomic, "boom in attempt 1"), (staged, "boom outside")] {
        assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
        let error = bed.attempts(id).await[0].error.clone().unwrap();
        assert_eq!(error, format!("handler panicked: {text}"));
    }
    assert_eq!(bed.ledger().await, 1);
}

async fn a_nested_transaction_stays_inside(bed: &Bed) {
    let texts = [
        "commit, then fail",
        "roll back, then done",
        "forget, then done",
        "commit, then done",
    ];
    let ids = bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "outer").await?;
        let mut inner = tx.begin().await?;
        sqlx::query("insert into ledger (job, note) values ($1, 'inner')")
            .bind(cx.id())
            .execute(&mut *inner)
            .await?;
        match job.text.split(',').next() {
            Some("commit") => inner.commit().await?,
            Some("roll back") => inner.rollback().await?,
            _ => drop(inner),
        }
        if job.text.ends_with("fail") {
            return fail(Fail::retire("changed my mind"));
        }
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &ids).await;

    for (id, outer, inner) in [(ids[0], 0, 0), (ids[1], 1, 0), (ids[2], 1, 0), (ids[3], 1, 1)] {
        let rows = |note: &str| format!("select count(*) from ledger where job = {id} and note = '{note}'");
        let found = (bed.count(&rows("outer")).await, bed.count(&rows("inner")).await);
        assert_eq!(found, (outer, inner), "{}", bed.job(id).await.payload);
    }
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retired]);
    assert_eq!(bed.ends(ids[2]).await, [Ended::Done]);
}

/// Ends its transaction by hand in the way that its text says.
async fn ends_its_own(cx: Ctx, job: Note, mut tx: Tx) -> super::db::Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    let (how, then) = job.text.split_once(", then ").unwrap();
    let how = match how {
        "commit" => "commit",
        "commit and begin" => "commit; begin",
        _ => "rollback",
    };
    sqlx::raw_sql(how).execute(&mut *tx).await?;
    match then {
        "done" => tx.done().ok(),
        "panic" => panic!("after its own end"),
        _ => fail("after its own end"),
    }
}

async fn a_handler_that_commits_its_own_transaction_becomes_a_case(bed: &Bed) {
    let texts = [
        "commit, then done",
        "commit and begin, then done",
        "rollback, then done",
    ];
    let ids = bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap();
    bed.work(
        bed.worker().handle(rowlock::atomic(ends_its_own).backoff(AT_ONCE)),
        &ids,
    )
    .await;
    for id in &ids {
        let case = bed.rowlock.observe().case(*id).await.unwrap().unwrap();
        assert_eq!((case.reason.as_str(), case.attempt), (ENDED_ITS_OWN, 1));
    }
    assert_eq!(
        bed.ledger().await,
        2,
        "what was committed by hand stands; what was rolled back does not"
    );
}

/// Its writes stand whatever it says afterwards, so another attempt would do them again.
async fn a_handler_that_commits_its_own_transaction_and_fails_is_never_retried(bed: &Bed) {
    let texts = ["commit, then fail", "commit, then panic", "commit and begin, then fail"];
    let ids = bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap();
    bed.work(
        bed.worker().handle(rowlock::atomic(ends_its_own).backoff(AT_ONCE)),
        &ids,
    )
    .await;
    for id in &ids {
        let rows = bed
            .count(&format!("select count(*) from ledger where job = {id}"))
            .await;
        assert_eq!(
            (bed.ends(*id).await, rows),
            (vec![Ended::Retired], 1),
            "{:?}",
            bed.attempts(*id).await
        );
        let case = bed.rowlock.observe().case(*id).await.unwrap().unwrap();
        assert!(case.reason.starts_with(ENDED_ITS_OWN), "{}", case.reason);
    }
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "brief", time_limit = "300ms", attempts = 2)]
struct Brief {}

async fn a_handler_that_commits_its_own_transaction_and_hangs_is_never_retried(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Brief {}).await.unwrap().id();
    let hang = |cx: Ctx, _: Brief, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        sqlx::raw_sql("commit").execute(&mut *tx).await?;
        std::future::pending::<()>().await;
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(hang).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!((bed.ends(id).await, bed.ledger().await), (vec![Ended::Retired], 1));
}

async fn the_connection_of_a_handler_that_ended_its_own_transaction_is_not_used_again(bed: &Bed) {
    let bad = bed.note("commit and begin, then done").await;
    bed.work(
        bed.worker().connections(1).handle(rowlock::atomic(ends_its_own)),
        &[bad],
    )
    .await;
    let good = bed.note("commit and begin, then done").await;
    bed.work(bed.worker().connections(1).handle(rowlock::atomic(note)), &[good])
        .await;
    assert_eq!(bed.ends(good).await, [Ended::Done]);
}

async fn a_transaction_dropped_before_the_failure_is_no_trouble(bed: &Bed) {
    let texts = ["drop the transaction", "drop the done"];
    let ids = bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if job.text.ends_with("done") {
            drop(tx.done().then(Note::new("next")));
        } else {
            drop(tx);
        }
        fail(Fail::retire("on purpose"))
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &ids).await;
    for id in ids {
        assert_eq!(bed.job(id).await.last_error.as_deref(), Some("on purpose"));
    }
    assert_eq!(
        (bed.ledger().await, bed.count("select count(*) from rowlock.job").await),
        (0, 2)
    );
}

async fn a_transaction_moved_to_another_task_is_a_failed_attempt(bed: &Bed) {
    let id = bed.note("x").await;
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let gate = gate.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            if cx.attempt() > 1 {
                return tx.done().ok();
            }
            tokio::spawn(async move {
                gate.notified().await;
                drop(tx);
            });
            fail("gave my transaction away")
        }
    };
    let running = Running::start(bed.worker().handle(rowlock::atomic(handler).backoff(AT_ONCE)));
    until("the first attempt to run", async || running.counters.claimed() >= 1).await;
    go.notify_one();
    until("the second attempt to succeed", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
    running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    assert_eq!(bed.ledger().await, 1);
}

/// A place to hand a transaction from one handler to another.
struct Passage {
    give: mpsc::Sender<Tx>,
    take: Mutex<mpsc::Receiver<Tx>>,
    waiting: Notify,
}

async fn another_jobs_transaction_is_refused(bed: &Bed) {
    let (give, take) = mpsc::channel(1);
    let passage = Passage {
        give,
        take: Mutex::new(take),
        waiting: Notify::new(),
    };
    let thief = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let victim = bed.note("mine").await;
    let gives = |cx: Ctx<Passage>, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if cx.attempt() > 1 {
            return tx.done().ok();
        }
        cx.state().waiting.notified().await;
        let _ = cx.state().give.send(tx).await;
        fail("gave it away")
    };
    let takes = |cx: Staged<Passage>, _: Other| async move {
        cx.state().waiting.notify_one();
        let stolen = cx.state().take.lock().await.recv().await.unwrap();
        stolen.done().ok()
    };
    // The thief runs first: on SQLite nothing can be claimed while the other's transaction is open.
    let worker = bed
        .worker()
        .state(passage)
        .handle(rowlock::staged(takes))
        .handle(rowlock::atomic(gives).backoff(AT_ONCE));
    bed.work(worker, &[thief, victim]).await;

    let case = bed.rowlock.observe().case(thief).await.unwrap().unwrap();
    assert_eq!(case.reason, "the handler returned another job's transaction");
    assert_eq!(bed.ends(victim).await, [Ended::Retried, Ended::Done]);
    assert_eq!(bed.ledger().await, 1);
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "order")]
struct Order {
    items: Vec<Item>,
}

#[derive(Serialize, Deserialize)]
struct Item {
    count: u32,
}

/// A payload that takes its reader down.
#[derive(Serialize, Deserialize)]
struct Explosive;

impl Job for Explosive {
    const KIND: &'static str = "explosive";

    fn decode(_: i32, payload: &str) -> Result<Explosive, String> {
        panic!("cannot read {payload}")
    }
}

async fn an_undecodable_payload_becomes_a_case_with_the_fields_path(bed: &Bed) {
    let admin = Admin::open(&bed.database.queue_url, "rowlock").unwrap();
    let named = |payload: &str| NamedJob::new("order", payload);
    let wrong = admin
        .enqueue(named(r#"{"items": [{"count": 1}, {"count": "two"}]}"#))
        .await
        .unwrap()
        .id();
    let missing = admin.enqueue(named("{}")).await.unwrap().id();
    let explosive = bed.rowlock.enqueue_now(Explosive).await.unwrap().id();
    let worker = bed
        .worker()
        .handle(rowlock::atomic(|_: Ctx, _: Order, tx: Tx| async { tx.done().ok() }));
    let worker = worker.handle(rowlock::staged(|cx: Staged, _: Explosive| async { cx.done().ok() }));
    bed.work(worker, &[wrong, missing, explosive]).await;

    let reason = async |id| bed.rowlock.observe().case(id).await.unwrap().unwrap().reason;
    let text = reason(wrong).await;
    assert!(
        text.starts_with("payload at items[1].count: invalid type: string \"two\""),
        "{text}"
    );
    let text = reason(missing).await;
    assert!(text.contains("missing field `items`"), "{text}");
    assert_eq!(reason(explosive).await, "decoding panicked: cannot read null");
    assert_eq!(bed.ends(wrong).await, [Ended::Retired]);
}

async fn what_a_handler_enqueues_commits_with_it_or_not_at_all(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["done", "fail"].map(Note::new))
        .await
        .unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        let _ = cx.rowlock().enqueue(&mut tx, Other { n: cx.id().into() }).await?;
        match job.text.as_str() {
            "done" => tx.done().ok(),
            _ => fail(Fail::retire("no")),
        }
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &ids).await;
    let left = bed.count("select count(*) from rowlock.job where kind = 'other'").await;
    assert_eq!(left, 1);
}

mod tests {
    super::super::cases!(
        an_sql_error_inside_the_handler_is_recorded_and_retried,
        a_panic_is_caught_and_recorded_with_its_text,
        a_nested_transaction_stays_inside,
        a_handler_that_commits_its_own_transaction_becomes_a_case,
        a_handler_that_commits_its_own_transaction_and_fails_is_never_retried,
        a_handler_that_commits_its_own_transaction_and_hangs_is_never_retried,
        the_connection_of_a_handler_that_ended_its_own_transaction_is_not_used_again,
        a_transaction_dropped_before_the_failure_is_no_trouble,
        a_transaction_moved_to_another_task_is_a_failed_attempt,
        another_jobs_transaction_is_refused,
        an_undecodable_payload_becomes_a_case_with_the_fields_path,
        what_a_handler_enqueues_commits_with_it_or_not_at_all,
    );
}
