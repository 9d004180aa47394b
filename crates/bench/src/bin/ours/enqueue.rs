//! Bulk enqueue through the typed API.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use protocol::{Args, DONE, Fill, say};
use rowlock::Rowlock;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    handlers::{Book, Noop, Numbered, Tables},
    tuning::Bulk,
};

pub(crate) async fn run<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    warm(rowlock).await?;
    let took = match args.kind.as_str() {
        "book" => all::<Book, DB>(rowlock, args).await?,
        _ => all::<Noop, DB>(rowlock, args).await?,
    };
    say(&json!({"event": "enqueued", "jobs": args.jobs, "seconds": took.as_secs_f64()}));
    Ok(())
}

/// Opens the connections that an enqueue uses: reads share them.
pub(crate) async fn warm<DB: Tables>(rowlock: &Rowlock<DB>) -> Result<()> {
    let observe = rowlock.observe();
    let one = || observe.rollouts();
    tokio::try_join!(one(), one(), one(), one())?;
    Ok(())
}

async fn all<J: Numbered, DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<Duration> {
    let bulk = Bulk::best::<DB>(args);
    let fill = Arc::new(Fill::new(args.payload));
    let (from, jobs, groups) = (Arc::new(AtomicU64::new(0)), args.jobs, args.groups);
    let after = Duration::from_secs(args.after_s);
    let began = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..bulk.producers {
        let (rowlock, fill, from) = (rowlock.clone(), fill.clone(), from.clone());
        producers.spawn(async move {
            loop {
                let first = from.fetch_add(bulk.chunk, Ordering::Relaxed);
                if first >= jobs {
                    return Ok::<(), rowlock::Error>(());
                }
                let numbers = first as i64..(first + bulk.chunk).min(jobs) as i64;
                let jobs = numbers.map(|number| J::make(number, &fill));
                let mut put = rowlock.enqueue_all_now(jobs).after(after);
                if groups > 0 {
                    // As many groups as were asked for, apart from those of another number.
                    put = put.group_by(|job| format!("{groups}:{}", job.number() as u64 % groups));
                }
                let put = put.await?;
                DONE.fetch_add(put.len() as u64, Ordering::Relaxed);
            }
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    Ok(began.elapsed())
}
