//! The short verbs: setup, a job whose worker is killed, a worker without work.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use protocol::{Args, say};
use rowlock::{Job, Outcome, Rowlock, Staged, Worker, staged};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::handlers::{Noop, Tables};

pub(crate) async fn setup<DB: Tables>(rowlock: &Rowlock<DB>) -> Result<()> {
    rowlock.migrate().await?;
    say(&json!({"event": "ready"}));
    Ok(())
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "stuck", queue = "stuck")]
struct Stuck {}

/// Nothing is set on this worker: what is measured is how soon its defaults find the job of a dead one.
pub(crate) async fn stuck<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    if !args.again {
        let _ = rowlock.enqueue_now(Stuck {}).await?;
    }
    let worker = Worker::new(rowlock).queue("stuck", 4).handle(staged(sleep::<DB>));
    worker.run_until(std::future::pending()).await?;
    Ok(())
}

async fn sleep<DB: Tables>(cx: Staged<(), DB>, _job: Stuck) -> Outcome<DB> {
    say(&json!({"event": "started", "pid": std::process::id()}));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    cx.done().ok()
}

async fn nothing<DB: Tables>(cx: Staged<Arc<()>, DB>, _job: Noop) -> Outcome<DB> {
    cx.done().ok()
}

pub(crate) async fn idle<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    let worker = Worker::new(rowlock).state(Arc::new(()));
    let worker = (0..args.queues).fold(worker, |worker, no| worker.queue(format!("idle{no}"), 4));
    let worker = worker.handle(staged(nothing::<DB>));
    let up = async {
        say(&json!({"event": "idle", "pid": std::process::id()}));
        tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    };
    worker.run_until(up).await?;
    Ok(())
}
