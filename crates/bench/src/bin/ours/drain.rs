//! A worker over jobs that are there already.
//!
//! The counters rise after the commit that settled a job, so that all counted means all durable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use protocol::{Args, say, unix_us, unsupported};
use rowlock::{Batch, Counters, Ended, Event, Rowlock, Worker, atomic, staged};
use serde_json::json;

use super::{
    handlers::{Tables, Tally, book, noop},
    tuning::worker,
};

/// How often the counters are read.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A worker that shares a queue and settled nothing for so long asks whether anything is left.
const QUIET: Duration = Duration::from_millis(30);

/// Tuned, failures being rare here, without savepoints; else as a first try would have it.
fn batch_of(args: &Args, jobs: usize) -> Batch {
    match args.mode.as_str() {
        "defaults" => Batch::up_to(jobs),
        _ => Batch::up_to(jobs).without_savepoints(),
    }
}

pub(crate) async fn run<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    let jobs = if args.share { u64::MAX } else { args.jobs };
    let tally = Tally::new(jobs, args.next);
    let worker = worker(rowlock, args, &args.kind, &tally);
    let worker = match (args.kind.as_str(), args.batch) {
        ("book", None) => worker.handle(atomic(book::<DB>)),
        ("book", Some(batch)) => worker.handle(atomic(book::<DB>).batch(batch_of(args, batch))),
        (_, None) => worker.handle(staged(noop::<DB>)),
        (_, Some(_)) => {
            unsupported("staged no-op jobs are settled in batches already");
            return Ok(());
        }
    };
    if args.share {
        return shared(rowlock, args, worker, &tally).await;
    }
    let (worker, claims) = with_claims(worker);
    let counters = worker.counters();
    let mut took = Duration::ZERO;
    let all = async {
        until_done(&counters, jobs).await;
        took = tally.began().elapsed();
    };
    worker.run_until(all).await?;
    let claims = claims.load(Ordering::Relaxed);
    say(&json!({
        "event": "drained",
        "jobs": jobs,
        "seconds": took.as_secs_f64(),
        "handlers_seconds": tally.handlers_seconds(),
        "claims": claims,
        "jobs_per_claim": counters.claimed() as f64 / claims.max(1) as f64,
    }));
    if args.part {
        return Ok(());
    }
    let left = left(rowlock, &args.kind).await?;
    ensure!(left == 0, "{left} jobs of kind {} are left after the drain", args.kind);
    Ok(())
}

/// Counts the claims that brought something.
pub(crate) fn with_claims<A: Send + Sync + 'static, DB: Tables>(
    worker: Worker<A, DB>,
) -> (Worker<A, DB>, Arc<AtomicU64>) {
    let claims = Arc::new(AtomicU64::new(0));
    let count = claims.clone();
    let worker = worker.on_event(move |event| {
        if let Event::Claimed { .. } = event {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (worker, claims)
}

pub(crate) async fn until_done(counters: &Counters, jobs: u64) {
    while counters.settled(Ended::Done) < jobs {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Jobs of a kind that are in any place but finished.
pub(crate) async fn left<DB: Tables>(rowlock: &Rowlock<DB>, kind: &str) -> Result<i64> {
    let status = rowlock.observe().status().await?;
    let lanes = status.lanes.iter().filter(|lane| lane.kind == kind);
    Ok(lanes
        .map(|l| l.due + l.scheduled + l.waiting + l.leased + l.cases)
        .sum())
}

/// One of several processes on the same queue: goes on until there is nothing left for any of them.
async fn shared<DB: Tables>(
    rowlock: &Rowlock<DB>,
    args: &Args,
    worker: Worker<Arc<Tally>, DB>,
    tally: &Tally,
) -> Result<()> {
    let counters = worker.counters();
    let (began_us, mut done, mut done_at) = (unix_us(), 0, tally.began());
    let mut ended_us = began_us;
    let all = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = counters.settled(Ended::Done);
            if now > done {
                (done, done_at, ended_us) = (now, Instant::now(), unix_us());
            } else if done_at.elapsed() >= QUIET {
                if matches!(left(rowlock, &args.kind).await, Ok(0)) {
                    return;
                }
                tokio::time::sleep(QUIET).await;
            }
        }
    };
    worker.run_until(all).await?;
    say(&json!({
        "event": "drained",
        "jobs": done,
        "seconds": done_at.duration_since(tally.began()).as_secs_f64(),
        "handlers_seconds": null,
        "began_us": began_us,
        "ended_us": ended_us,
    }));
    Ok(())
}
