//! Producers and a worker at the same time in one process, the backlog bounded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use protocol::{Args, BACKLOG_MAX, Fill, say};
use rowlock::{Counters, Ended, Rowlock, staged};
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    drain::{left, until_done},
    enqueue::warm,
    handlers::{Noop, Numbered, Tables, Tally, noop},
    tuning::{Bulk, worker},
};

pub(crate) async fn run<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    warm(rowlock).await?;
    let fill = Arc::new(Fill::new(args.payload));
    let tally = Tally::new(args.jobs, false);
    let worker = worker(rowlock, args, "noop", &tally).handle(staged(noop::<DB>));
    let counters = worker.counters();
    let mut producing = produce(rowlock, args, args.jobs, &fill, &counters).0;
    let mut took = Duration::ZERO;
    let all = async {
        until_done(&counters, args.jobs).await;
        took = tally.began().elapsed();
    };
    worker.run_until(all).await?;
    while let Some(ended) = producing.join_next().await {
        ended??;
    }
    say(&json!({"event": "lived", "jobs": args.jobs, "seconds": took.as_secs_f64()}));
    let left = left(rowlock, "noop").await?;
    ensure!(left == 0, "{left} jobs are left after all were counted");
    Ok(())
}

/// The same without an end, telling each second how many jobs were done in it.
pub(crate) async fn hold<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    warm(rowlock).await?;
    let fill = Arc::new(Fill::new(args.payload));
    let tally = Tally::new(u64::MAX, false);
    let worker = worker(rowlock, args, "noop", &tally).handle(staged(noop::<DB>));
    let counters = worker.counters();
    let (mut producing, enqueued) = produce(rowlock, args, u64::MAX, &fill, &counters);
    let seconds = async {
        let began = Instant::now();
        let mut before = 0;
        for second in 1..=args.seconds {
            tokio::time::sleep_until((began + Duration::from_secs(second)).into()).await;
            let done = counters.settled(Ended::Done);
            let backlog = enqueued.load(Ordering::Relaxed).saturating_sub(done);
            say(&json!({"event": "second", "second": second, "done": done - before, "backlog": backlog}));
            before = done;
        }
    };
    worker.grace(Duration::from_secs(1)).run_until(seconds).await?;
    producing.abort_all();
    while let Some(ended) = producing.join_next().await {
        match ended {
            Ok(produced) => produced?,
            Err(cancelled) => ensure!(cancelled.is_cancelled(), "a producer panicked"),
        }
    }
    Ok(())
}

type Producing = (JoinSet<Result<(), rowlock::Error>>, Arc<AtomicU64>);

/// Half as many producers as a bulk enqueue uses: the worker wants the other half of the machine.
fn produce<DB: Tables>(
    rowlock: &Rowlock<DB>,
    args: &Args,
    jobs: u64,
    fill: &Arc<Fill>,
    counters: &Arc<Counters>,
) -> Producing {
    let bulk = Bulk::best::<DB>(args);
    let producers = args.producers.unwrap_or(bulk.producers / 2).max(1);
    let claimed = Arc::new(AtomicU64::new(0));
    let enqueued = Arc::new(AtomicU64::new(0));
    let mut producing = JoinSet::new();
    for _ in 0..producers {
        let (rowlock, fill, counters) = (rowlock.clone(), fill.clone(), counters.clone());
        let (claimed, enqueued) = (claimed.clone(), enqueued.clone());
        producing.spawn(async move {
            loop {
                let first = claimed.fetch_add(bulk.chunk, Ordering::Relaxed);
                if first >= jobs {
                    return Ok(());
                }
                let end = (first + bulk.chunk).min(jobs);
                while end > counters.settled(Ended::Done) + BACKLOG_MAX {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let batch = (first as i64..end as i64).map(|number| Noop::make(number, &fill));
                let put = rowlock.enqueue_all_now(batch).await?;
                enqueued.fetch_add(put.len() as u64, Ordering::Relaxed);
            }
        });
    }
    (producing, enqueued)
}
