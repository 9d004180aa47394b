//! Graceful shutdown: a running handler gets a signal and may finish. A job that was claimed but not started goes back
//! without losing an attempt, and the next worker carries on.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rowlock::{
    Ended, Event, Job, State,
    observe::JobFilter,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "write-report")]
struct WriteReport {
    page: i64,
}

/// A long handler: it tells that it has begun, works until the worker stops, then comes to an end.
async fn slow(cx: Staged<Arc<Notify>>, _job: WriteReport) -> Outcome {
    println!("first worker: a page begun");
    cx.state().notify_one();
    cx.stopping().await;
    println!("first worker: told to stop, the page finished");
    cx.done().ok()
}

async fn quick(cx: Staged, _job: WriteReport) -> Outcome {
    println!("second worker: a page written in attempt {}", cx.attempt());
    cx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("report.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    rowlock
        .enqueue_all_now((1..=3).map(|page| WriteReport { page }))
        .await?;

    // One handler at a time and two jobs claimed ahead, so that all three are in this worker's hands when it stops.
    let begun = Arc::new(Notify::new());
    let worker = Worker::new(&rowlock)
        .state(begun.clone())
        .queue("default", 1)
        .prefetch(2)
        .handle(staged(slow));
    // A program waits for its signal here: `async { tokio::signal::ctrl_c().await.ok(); }`.
    worker.run_until(begun.notified()).await?;

    for state in [State::Finished, State::Ready] {
        let only = JobFilter::new().state(state);
        for job in rowlock.observe().jobs(&only).await? {
            let outcome = job.last_outcome.map_or("-", Ended::as_str);
            println!("{}: {outcome}, attempts used: {}", state.as_str(), job.attempt);
        }
    }

    let (rest, left) = (Arc::new(Notify::new()), AtomicUsize::new(2));
    let notify = rest.clone();
    let worker = Worker::new(&rowlock)
        .queue("default", 1)
        .handle(staged(quick))
        .on_event(move |event| {
            let done = matches!(event, Event::Settled { ended: Ended::Done, .. });
            if done && left.fetch_sub(1, Ordering::SeqCst) == 1 {
                notify.notify_one();
            }
        });
    worker.run_until(rest.notified()).await?;
    Ok(())
}
