//! One database with a bit of everything, built by workers in this process in the same way on either store: jobs that
//! are done, retried, retired, in a chain, in doubt, in a group, waiting for a name, scheduled and leased.

use std::{future::pending, time::Duration};

use rowlock::{
    Backend, Backoff, Breaker, Ctx, Fail, Job, Outcome, Rowlock, Staged, State, Tx, Worker, atomic, observe::Observe,
    staged,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Short, so that a silent worker is soon noticed; not too short for a busy machine.
const LEASE: Duration = Duration::from_secs(4);

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "orders", attempts = 3)]
struct Charge {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "receipt", queue = "orders", attempts = 3)]
struct Receipt {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "refund", queue = "orders", attempts = 3)]
struct Refund {
    order: i64,
}

/// Nobody serves its queue.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "letter", queue = "post")]
struct Letter {
    order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "booking", queue = "ledger")]
struct Booking {
    cents: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "report", queue = "reports")]
struct Report {
    month: i64,
}

/// Order 1 goes on to its receipt; every other card is declined.
async fn charge<DB: Backend>(_: Ctx<(), DB>, job: Charge, tx: Tx<DB>) -> Outcome<DB> {
    if job.order != 1 {
        return Err(Fail::retire(format!("card {} was declined", job.order)));
    }
    let receipt = Receipt { order: job.order };
    tx.done().result(&json!({ "paid": true })).then(receipt).ok()
}

/// Done at the second attempt.
async fn receipt<DB: Backend>(cx: Ctx<(), DB>, job: Receipt, tx: Tx<DB>) -> Outcome<DB> {
    if cx.attempt() == 1 {
        return Err(Fail::retry("the printer is out of paper"));
    }
    tx.done().then(Letter { order: job.order }).ok()
}

/// Order 1 is answered; every other is unknown.
async fn refund<DB: Backend>(cx: Staged<(), DB>, job: Refund) -> Outcome<DB> {
    let order = job.order;
    let call = async move |_| match order {
        1 => Ok("refund 81".to_owned()),
        _ => Err("no answer"),
    };
    let reply = cx.effect("refund", call).park().await?;
    cx.done().result(&reply).ok()
}

/// Never ends by itself.
async fn report<DB: Backend>(cx: Staged<(), DB>, _: Report) -> Outcome<DB> {
    cx.stopping().await;
    pending().await
}

/// Jobs 1 to 3 are a chain, 4 and 5 cases that failed alike, 6 is in doubt, 7 done, 8 and 9 a group, 10 waits for a
/// name, 11 is scheduled, 12 due.
pub(crate) async fn build<DB: Backend>(url: &str) {
    let rowlock = Rowlock::<DB>::open(url).unwrap();
    let look = rowlock.observe();
    let worker = Worker::new(&rowlock)
        .name("worker 7")
        .queue("orders", 1)
        .handle(atomic(charge::<DB>).breaker("bank", Breaker::after(5)))
        .handle(
            atomic(receipt::<DB>).backoff(
                Backoff::new()
                    .base(Duration::from_millis(1))
                    .max(Duration::from_millis(1)),
            ),
        )
        .handle(staged(refund::<DB>));
    let play = async {
        let put = rowlock.enqueue_now(Charge { order: 1 }).key("charge:1").tag("vip");
        assert_eq!(put.await.unwrap().id(), 1);
        stands(&look, 2, State::Finished).await;
        for (id, order) in [(4, 2), (5, 3)] {
            assert_eq!(rowlock.enqueue_now(Charge { order }).await.unwrap().id(), id);
            stands(&look, id, State::Case).await;
        }
        for (id, order, state) in [(6, 2, State::Case), (7, 1, State::Finished)] {
            assert_eq!(rowlock.enqueue_now(Refund { order }).await.unwrap().id(), id);
            stands(&look, id, state).await;
        }
        until("the cases to be named", async || {
            let errors = look.case_errors(10).await.unwrap();
            errors.iter().map(|error| error.cases).sum::<i64>() == 3
        })
        .await;
    };
    worker.run_until(play).await.unwrap();
    for cents in [250, -250] {
        let booking = rowlock.enqueue_now(Booking { cents }).group("account:42");
        let _ = booking.await.unwrap();
    }
    let letter = |order| rowlock.enqueue_now(Letter { order });
    let _ = letter(2).waits_for("approval:42").await.unwrap();
    let _ = letter(3).after(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(letter(4).await.unwrap().id(), 12);
}

/// A worker that holds a job, on a separate thread.
pub(crate) struct Holder {
    thread: std::thread::JoinHandle<()>,
    go: tokio::sync::oneshot::Sender<()>,
}

impl Holder {
    /// Job 13 is in its hands then.
    pub(crate) async fn start<DB: Backend>(url: &str) -> Holder {
        let rowlock = Rowlock::<DB>::open(url).unwrap();
        let (look, worker) = (rowlock.observe(), rowlock.clone());
        let (go, gone) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let worker = Worker::new(&worker)
                .name("worker 8")
                .lease(LEASE)
                .queue("reports", 1)
                .handle(staged(report::<DB>));
            runtime.block_on(async {
                tokio::select! {
                    ended = worker.run_until(pending()) => ended.unwrap(),
                    _ = gone => {}
                }
            });
            runtime.shutdown_background();
        });
        assert_eq!(rowlock.enqueue_now(Report { month: 1 }).await.unwrap().id(), 13);
        stands(&look, 13, State::Leased).await;
        Holder { thread, go }
    }

    /// It goes without a word, as a process that is killed does.
    pub(crate) fn vanish(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

async fn stands(look: &Observe, id: i64, state: State) {
    until(&format!("job {id} to be {}", state.as_str()), async || {
        look.job(id).await.unwrap().is_some_and(|job| job.state == state)
    })
    .await;
}

async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let wait = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(waited.is_ok(), "waited 30 s for {what}");
}
