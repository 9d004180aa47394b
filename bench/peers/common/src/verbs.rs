//! The verbs of the program protocol, timed the same way for every peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::tally::{limit, reached, remember_starts, total};
use crate::{Ask, Kind, Peer, Tuning, Work, dial, emit};

/// Ready jobs that producers may be ahead of the worker.
const BACKLOG_MAX: i64 = 20_000;
/// How long a last, missing pickup is waited for.
const PICKUP_GRACE: Duration = Duration::from_secs(10);

/// Runs one verb and ends the process: what was measured is committed, so a slow shutdown proves nothing.
pub fn main<P: Peer>() -> ! {
    let ask = Ask::from_command_line();
    let ended = tokio::runtime::Runtime::new()
        .context("no async runtime")
        .and_then(|runtime| runtime.block_on(run::<P>(&ask)));
    if let Err(error) = &ended {
        eprintln!("{}: {error:#}", ask.verb);
    }
    std::process::exit(i32::from(ended.is_err()))
}

async fn run<P: Peer>(ask: &Ask) -> Result<()> {
    if ask.verb == "about" {
        emit(P::about());
        return Ok(());
    }
    let hold_seconds = ask.number("seconds", 0)?;
    limit(ask.number("limit-s", 120.max(hold_seconds + 60))?);
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    match ask.verb.as_str() {
        "setup" => {
            P::setup(&url).await?;
            emit(json!({"event": "ready"}));
            Ok(())
        }
        "enqueue" => enqueue::<P>(ask, &url).await,
        "drain" if ask.has("batch") => unsupported("its jobs do not share a commit"),
        "drain" => drain::<P>(ask, &url).await,
        "life" => life::<P>(ask, &url).await,
        "hold" => hold::<P>(ask, &url).await,
        "pickup" if ask.has("load") => unsupported("pickup under load is measured for ours only"),
        "pickup" => pickup::<P>(ask, &url).await,
        "stuck" => stuck::<P>(ask, &url).await,
        verb => unsupported(&format!("no verb {verb:?} here")),
    }
}

fn unsupported(why: &str) -> Result<()> {
    emit(json!({"event": "unsupported", "why": why}));
    Ok(())
}

fn kind(ask: &Ask) -> Result<Kind> {
    match ask.text("kind").unwrap_or("noop") {
        "noop" => Ok(Kind::Noop),
        "book" => Ok(Kind::Book),
        other => bail!("--kind {other} is neither noop nor book"),
    }
}

async fn enqueue<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let jobs = ask.number("jobs", 0)?;
    let feed = Feed {
        kind: kind(ask)?,
        jobs: jobs as i64,
        payload: payload(ask)?,
        backlog_max: i64::MAX,
    };
    let producer = Arc::new(P::connect(url, Tuning::Noop).await?);
    let begun = Instant::now();
    feed.run(&producer, Arc::default()).await?;
    emit(json!({"event": "enqueued", "jobs": jobs, "seconds": begun.elapsed().as_secs_f64()}));
    Ok(())
}

async fn drain<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let jobs = ask.number("jobs", 0)?;
    let kind = kind(ask)?;
    let tuning = match ask.text("mode").unwrap_or("best") {
        "best" if kind == Kind::Book => Tuning::Book,
        "best" => Tuning::Noop,
        "defaults" => Tuning::Defaults,
        other => bail!("--mode {other} is neither best nor defaults"),
    };
    let worker = P::connect(url, tuning).await?;
    let begun = Instant::now();
    let _running = worker
        .start(Work {
            kind,
            next: ask.has("next"),
            tuning,
        })
        .await?;
    reached(jobs).await;
    let handlers_seconds = begun.elapsed().as_secs_f64();
    durable(&worker, jobs).await?;
    let seconds = begun.elapsed().as_secs_f64();
    emit(json!({"event": "drained", "jobs": jobs, "seconds": seconds, "handlers_seconds": handlers_seconds}));
    Ok(())
}

/// A handler that returned is not a completion that a crash cannot take back: wait for the peer's own table.
async fn durable<P: Peer>(worker: &P, jobs: u64) -> Result<()> {
    while worker.left(jobs).await? > 0 {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn life<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let jobs = ask.number("jobs", 0)?;
    let feed = Feed {
        kind: Kind::Noop,
        jobs: jobs as i64,
        payload: payload(ask)?,
        backlog_max: BACKLOG_MAX,
    };
    let worker = P::connect(url, Tuning::Noop).await?;
    let producer = Arc::new(P::connect(url, Tuning::Noop).await?);
    let begun = Instant::now();
    let _running = worker
        .start(Work {
            kind: Kind::Noop,
            next: false,
            tuning: Tuning::Noop,
        })
        .await?;
    feed.run(&producer, Arc::default()).await?;
    reached(jobs).await;
    durable(&worker, jobs).await?;
    emit(json!({"event": "lived", "jobs": jobs, "seconds": begun.elapsed().as_secs_f64()}));
    Ok(())
}

async fn hold<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let seconds = ask.number("seconds", 60)?;
    let feed = Feed {
        kind: Kind::Noop,
        jobs: i64::MAX,
        payload: payload(ask)?,
        backlog_max: BACKLOG_MAX,
    };
    let worker = P::connect(url, Tuning::Noop).await?;
    let producer = Arc::new(P::connect(url, Tuning::Noop).await?);
    let _running = worker
        .start(Work {
            kind: Kind::Noop,
            next: false,
            tuning: Tuning::Noop,
        })
        .await?;
    let put = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&put);
    let feeding = tokio::spawn(async move { feed.run(&producer, counted).await });
    let mut ticks = interval(Duration::from_secs(1));
    ticks.tick().await;
    let mut before = total();
    for second in 1..=seconds {
        ticks.tick().await;
        if feeding.is_finished() {
            feeding.await??;
            bail!("the producers ended");
        }
        let now = total();
        emit(json!({"event": "second", "second": second, "done": now - before,
            "backlog": put.load(Relaxed) - now as i64}));
        before = now;
    }
    Ok(())
}

async fn pickup<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let jobs = ask.number("jobs", 200)?;
    let every = Duration::from_millis(ask.number("every-ms", 50)?);
    let tuning = if ask.has("poll-only") {
        Tuning::PollOnly
    } else {
        Tuning::Pickup
    };
    if let Some(why) = P::cannot(tuning) {
        return unsupported(why);
    }
    let worker = P::connect(url, tuning).await?;
    // A separate client: a producer rarely runs in the worker's process, so the notification has to travel.
    let producer = P::connect(url, tuning).await?;
    let payload = payload(ask)?;
    let _running = worker
        .start(Work {
            kind: Kind::Noop,
            next: false,
            tuning,
        })
        .await?;
    producer.put(Kind::Noop, jobs as i64..jobs as i64 + 1, payload).await?;
    reached(1).await;
    sleep(Duration::from_millis(500)).await;

    let starts = remember_starts(jobs as usize);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut commits = Vec::with_capacity(jobs as usize);
    for number in 0..jobs as i64 {
        ticks.tick().await;
        producer.put(Kind::Noop, number..number + 1, payload).await?;
        commits.push(Instant::now());
    }
    let last = Instant::now();
    while starts.iter().any(|start| start.get().is_none()) && last.elapsed() < PICKUP_GRACE {
        sleep(Duration::from_millis(5)).await;
    }
    let waits: Vec<u64> = commits
        .iter()
        .zip(starts)
        .filter_map(|(commit, start)| {
            start
                .get()
                .map(|start| start.saturating_duration_since(*commit).as_micros() as u64)
        })
        .collect();
    emit(json!({"event": "pickup", "us": waits, "missing": jobs as usize - waits.len()}));
    Ok(())
}

async fn stuck<P: Peer>(ask: &Ask, url: &str) -> Result<()> {
    let worker = P::connect(url, Tuning::Defaults).await?;
    if !ask.has("again") {
        worker.put(Kind::Stuck, 0..1, payload(ask)?).await?;
    }
    let _running = worker
        .start(Work {
            kind: Kind::Stuck,
            next: false,
            tuning: Tuning::Defaults,
        })
        .await?;
    std::future::pending().await
}

fn payload(ask: &Ask) -> Result<usize> {
    Ok(ask.number("payload", 200)? as usize)
}

/// Producers that put jobs until there are enough, never further than `backlog_max` ahead of the handlers.
#[derive(Clone, Copy)]
struct Feed {
    kind: Kind,
    jobs: i64,
    payload: usize,
    backlog_max: i64,
}

impl Feed {
    /// `put` counts what is committed.
    async fn run<P: Peer>(self, producer: &Arc<P>, put: Arc<AtomicI64>) -> Result<()> {
        let best = producer.producers();
        let (count, chunk) = (dial("producers", best.count), dial("chunk", best.chunk));
        let next = Arc::new(AtomicI64::new(0));
        let mut running = JoinSet::new();
        for _ in 0..count {
            let (producer, next, put) = (Arc::clone(producer), Arc::clone(&next), Arc::clone(&put));
            running.spawn(async move { self.produce(&*producer, chunk as i64, &next, &put).await });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn produce<P: Peer>(self, producer: &P, chunk: i64, next: &AtomicI64, put: &AtomicI64) -> Result<()> {
        loop {
            let from = next.fetch_add(chunk, Relaxed);
            if from >= self.jobs {
                return Ok(());
            }
            let to = self.jobs.min(from.saturating_add(chunk));
            // `to` counts chunks other producers are still writing: the bound holds for all of them together.
            while to.saturating_sub(total() as i64) > self.backlog_max {
                sleep(Duration::from_millis(1)).await;
            }
            producer.put(self.kind, from..to, self.payload).await?;
            put.fetch_add(to - from, Relaxed);
        }
    }
}
