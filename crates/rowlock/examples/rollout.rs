//! A rollout gate: a new way that nobody takes until somebody says so, and that can be turned while workers run.

use rowlock::{
    Ended, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "greet")]
struct Greet {
    customer: i64,
}

async fn greet(cx: Ctx, job: Greet, tx: Tx) -> Outcome {
    let new = cx.rowlock().rollout("warm-greeting", &job.customer.to_string()).await?;
    let words = if new { "good to see you" } else { "hello" };
    tx.done().result(&words).ok()
}

/// Greets the customers 0 to 99 and counts who was greeted the new way.
async fn greet_all(url: &str) -> anyhow::Result<()> {
    let rowlock = Rowlock::open(url)?;
    rowlock
        .enqueue_all_now((0..100).map(|customer| Greet { customer }))
        .await?;
    let worker = Worker::new(&rowlock).queue("default", 4).handle(atomic(greet));
    let counters = worker.counters();
    let all_done = async {
        while counters.settled(Ended::Done) < 100 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    worker.run_until(all_done).await?;
    for count in rowlock.rollout_counts() {
        println!("{}: {} the new way, {} the old way", count.name, count.on, count.off);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("rollout.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    greet_all(&url).await?;
    // As `rowlock rollout warm-greeting 30` does; workers that run follow within a second.
    for percent in [30, 100, 0] {
        rowlock.operate().set_rollout("warm-greeting", percent, "ada").await?;
        let set = &rowlock.observe().rollouts().await?[0];
        println!("{} set {} to {} %", set.changed_by, set.name, set.percent);
        greet_all(&url).await?;
    }
    Ok(())
}
