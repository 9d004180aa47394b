//! How soon after the commit a waiting worker starts a job. Both ends are in one process, so one clock measures.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use protocol::{Args, Fill, say};
use rowlock::{Outcome, Rowlock, Staged, Worker, staged};
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    enqueue::warm,
    handlers::{Noop, Numbered, Tables},
    tuning::Tuning,
};

/// How long the last job may take to start.
const MISSING_AFTER: Duration = Duration::from_secs(10);
/// Jobs of the load that share a transaction, and how many producers enqueue them.
const LOAD_CHUNK: u64 = 20;
const LOADERS: u64 = 4;

type Starts = Arc<[OnceLock<Instant>]>;

pub(crate) async fn run<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    warm(rowlock).await?;
    let fill = Arc::new(Fill::new(args.payload));
    let starts: Starts = (0..args.jobs).map(|_| OnceLock::new()).collect();
    let best = Tuning::best::<DB>("noop");
    let mut worker = Worker::new(rowlock)
        .state(starts.clone())
        .queue("noop", args.concurrency.unwrap_or(best.concurrency))
        .connections(args.connections.unwrap_or(best.connections))
        .handle(staged(started::<DB>));
    if args.poll_only {
        worker = worker.poll_only();
    }
    let mut picked = Ok((Vec::new(), 0));
    let mut loaded = 0.0;
    let all = async {
        // Time to settle: the first listen and the first sweeps are no pickups.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (mut load, sent, began) = (JoinSet::new(), Arc::new(AtomicU64::new(0)), Instant::now());
        for _ in 0..LOADERS.min(args.load) {
            load.spawn(produce(rowlock.clone(), args.load, fill.clone(), sent.clone()));
        }
        picked = pick(rowlock, args, &fill, &starts).await;
        loaded = sent.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        load.abort_all();
    };
    worker.run_until(all).await?;
    let (us, missing) = picked?;
    let mut line = json!({"event": "pickup", "us": us, "missing": missing});
    if args.load > 0 {
        line["load_per_second"] = json!(loaded);
    }
    say(&line);
    Ok(())
}

async fn started<DB: Tables>(cx: Staged<Starts, DB>, job: Noop) -> Outcome<DB> {
    let now = Instant::now();
    if let Some(start) = usize::try_from(job.number).ok().and_then(|n| cx.state().get(n)) {
        start.get_or_init(|| now);
    }
    cx.done().ok()
}

async fn pick<DB: Tables>(
    rowlock: &Rowlock<DB>,
    args: &Args,
    fill: &Fill,
    starts: &Starts,
) -> Result<(Vec<u64>, usize)> {
    let mut committed = Vec::with_capacity(starts.len());
    let mut every = tokio::time::interval(Duration::from_millis(args.every_ms));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0..args.jobs as i64 {
        every.tick().await;
        let _ = rowlock.enqueue_now(Noop::make(number, fill)).await?;
        committed.push(Instant::now());
    }
    let last = Instant::now();
    while last.elapsed() < MISSING_AFTER && starts.iter().any(|s| s.get().is_none()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut us = Vec::with_capacity(starts.len());
    for (committed, start) in committed.iter().zip(starts.iter()) {
        if let Some(start) = start.get() {
            // A job may start before the reply of its commit has reached us.
            let took = start.saturating_duration_since(*committed);
            us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }
    let missing = starts.len() - us.len();
    Ok((us, missing))
}

/// One producer's share of the load, in small transactions at a steady pace.
async fn produce<DB: Tables>(rowlock: Rowlock<DB>, per_second: u64, fill: Arc<Fill>, sent: Arc<AtomicU64>) {
    let pause = Duration::from_secs_f64((LOAD_CHUNK * LOADERS) as f64 / per_second as f64);
    let mut every = tokio::time::interval(pause);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    loop {
        every.tick().await;
        let jobs = (0..LOAD_CHUNK as i64).map(|n| Noop::make(-1 - n, &fill));
        if let Err(error) = rowlock.enqueue_all_now(jobs).await {
            eprintln!("the load stopped: {error}");
            return;
        }
        sent.fetch_add(LOAD_CHUNK, Ordering::Relaxed);
    }
}
