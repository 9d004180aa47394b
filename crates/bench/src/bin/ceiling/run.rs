//! PostgreSQL: the verbs, over several connections at the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::{Result, ensure};
use protocol::{Args, BACKLOG_MAX, DONE, Fill, say};
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    lane::{Lane, Noop},
    pg::{Hand, Held, PAUSE, counts, lane},
};

/// Connections that claim and settle, and jobs per statement of theirs.
pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const BATCH: usize = 100;
/// Connections that insert beside them, and jobs per insert.
pub(crate) const PRODUCERS: usize = 2;
pub(crate) const CHUNK: u64 = 1000;

pub(crate) async fn run(url: &str, args: &Args) -> Result<()> {
    let lane = lane(url).await?;
    match args.verb.as_str() {
        "enqueue" => enqueue(url, args, lane).await,
        "life" => life(url, args, lane).await,
        _ => drain(url, args, lane).await,
    }
}

async fn hands(url: &str, args: &Args, lane: Lane, count: usize) -> Result<Vec<Hand>> {
    let mut hands = Vec::new();
    for _ in 0..count {
        hands.push(Hand::new(url, lane, args.batch.unwrap_or(BATCH)).await?);
    }
    Ok(hands)
}

/// Inserts until there are enough jobs, no further ahead of `done` than allowed.
fn produce(to: &mut JoinSet<Result<()>>, hands: Vec<Hand>, args: &Args, ahead: u64) {
    let (fill, from) = (Arc::new(Fill::new(args.payload)), Arc::new(AtomicU64::new(0)));
    let (jobs, chunk) = (args.jobs, args.chunk.unwrap_or(CHUNK).max(1));
    for hand in hands {
        let (fill, from) = (fill.clone(), from.clone());
        to.spawn(async move {
            loop {
                let first = from.fetch_add(chunk, Ordering::Relaxed);
                if first >= jobs {
                    return Ok(());
                }
                let end = (first + chunk).min(jobs);
                while end > DONE.load(Ordering::Relaxed).saturating_add(ahead) {
                    tokio::time::sleep(PAUSE).await;
                }
                let job = |number| Noop {
                    number,
                    fill: fill.of(number),
                };
                hand.insert((first as i64..end as i64).map(job).collect()).await?;
            }
        });
    }
}

/// Claims and settles until so many jobs are done.
fn work(to: &mut JoinSet<Result<()>>, hands: Vec<Hand>, jobs: u64) {
    for mut hand in hands {
        to.spawn(async move {
            let mut held = Held::default();
            while DONE.load(Ordering::Relaxed) < jobs {
                let next = hand.turn(&held).await?;
                DONE.fetch_add(held.len() as u64, Ordering::Relaxed);
                held = next;
                if held.len() == 0 {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Ok(())
        });
    }
}

async fn all(mut running: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn check(url: &str, jobs: u64) -> Result<()> {
    let [ready, leased, outcomes] = counts(url).await?;
    ensure!(
        (ready, leased, outcomes as u64) == (0, 0, jobs),
        "{ready} ready, {leased} leased, {outcomes} outcomes after {jobs} jobs"
    );
    Ok(())
}

async fn enqueue(url: &str, args: &Args, lane: Lane) -> Result<()> {
    let hands = hands(url, args, lane, args.producers.unwrap_or(CONNECTIONS)).await?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    produce(&mut running, hands, args, u64::MAX);
    all(running).await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "enqueued", "jobs": args.jobs, "seconds": seconds}));
    Ok(())
}

async fn drain(url: &str, args: &Args, lane: Lane) -> Result<()> {
    let hands = hands(url, args, lane, args.connections.unwrap_or(CONNECTIONS)).await?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    work(&mut running, hands, args.jobs);
    all(running).await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "drained", "jobs": args.jobs, "seconds": seconds, "handlers_seconds": seconds}));
    check(url, args.jobs).await
}

async fn life(url: &str, args: &Args, lane: Lane) -> Result<()> {
    let producers = hands(url, args, lane, args.producers.unwrap_or(PRODUCERS)).await?;
    let workers = hands(url, args, lane, args.connections.unwrap_or(CONNECTIONS)).await?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    produce(&mut running, producers, args, BACKLOG_MAX);
    work(&mut running, workers, args.jobs);
    all(running).await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "lived", "jobs": args.jobs, "seconds": seconds}));
    check(url, args.jobs).await
}
