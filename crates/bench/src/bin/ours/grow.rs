//! Jobs spread over many queues and many kinds.
//!
//! A kind is a type, so fifty kinds are fifty types. Job `n` goes to queue `n % queues` and is of kind `n % kinds`.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use protocol::{Args, DONE, Fill, say, unsupported};
use rowlock::{Job, JobId, Outcome, Rowlock, Staged, Worker, staged};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    drain::{left, until_done, with_claims},
    enqueue::warm,
    handlers::{Tables, Tally},
    tuning::{Bulk, Tuning},
};

/// As many kinds as there are types below.
const KINDS_MAX: usize = 50;

#[derive(Serialize, Deserialize)]
struct Payload {
    number: i64,
    fill: String,
}

/// One kind for each number, named after it.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Grown<const KIND: usize>(Payload);

impl<const KIND: usize> Job for Grown<KIND> {
    const KIND: &'static str = NAMES[KIND];
}

async fn count<const KIND: usize, DB: Tables>(cx: Staged<Arc<Tally>, DB>, job: Grown<KIND>) -> Outcome<DB> {
    std::hint::black_box((job.0.number, &job.0.fill));
    cx.state().count();
    cx.done().ok()
}

type Put<'c> = Pin<Box<dyn Future<Output = rowlock::Result<Vec<JobId>>> + Send + 'c>>;

macro_rules! kinds {
    ($($no:literal)*) => {
        const NAMES: [&str; KINDS_MAX] = [$(concat!("k", $no)),*];

        /// Puts payloads of one kind into one queue.
        fn put<DB: Tables>(rowlock: &Rowlock<DB>, kind: usize, queue: String, payloads: Vec<Payload>) -> Put<'_> {
            match kind {
                $($no => {
                    let jobs = payloads.into_iter().map(Grown::<$no>);
                    rowlock.enqueue_all_now(jobs).queue(queue).into_future()
                })*
                _ => unreachable!("kinds are counted before"),
            }
        }

        /// Handles one kind.
        fn handle<DB: Tables>(worker: Worker<Arc<Tally>, DB>, kind: usize) -> Worker<Arc<Tally>, DB> {
            match kind {
                $($no => worker.handle(staged(count::<$no, DB>)),)*
                _ => unreachable!("kinds are counted before"),
            }
        }
    };
}

kinds! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43
    44 45 46 47 48 49
}

fn refused(args: &Args) -> bool {
    let refused = args.kinds > KINDS_MAX || args.kinds == 0 || args.queues == 0;
    if refused {
        unsupported(&format!("1 to {KINDS_MAX} kinds and at least one queue"));
    }
    refused
}

fn queue(no: usize) -> String {
    format!("grow{no}")
}

pub(crate) async fn enqueue<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    if refused(args) {
        return Ok(());
    }
    warm(rowlock).await?;
    let fill = Arc::new(Fill::new(args.payload));
    let mut lanes: BTreeMap<(usize, usize), Vec<i64>> = BTreeMap::new();
    for number in 0..args.jobs as usize {
        let lane = (number % args.queues, number % args.kinds);
        lanes.entry(lane).or_default().push(number as i64);
    }
    let bulk = Bulk::best::<DB>(args);
    let pieces = |(lane, numbers): (_, Vec<i64>)| {
        let pieces: Vec<_> = numbers.chunks(bulk.chunk as usize).map(<[i64]>::to_vec).collect();
        pieces.into_iter().map(move |numbers| (lane, numbers))
    };
    let pieces = Arc::new(Mutex::new(lanes.into_iter().flat_map(pieces).collect::<Vec<_>>()));
    let began = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..bulk.producers {
        let (rowlock, fill, pieces) = (rowlock.clone(), fill.clone(), pieces.clone());
        let next = move || pieces.lock().unwrap_or_else(PoisonError::into_inner).pop();
        producers.spawn(async move {
            while let Some(((queue_no, kind), numbers)) = next() {
                let payload = |number| Payload {
                    number,
                    fill: fill.of(number),
                };
                let payloads = numbers.into_iter().map(payload).collect();
                let put = put(&rowlock, kind, queue(queue_no), payloads).await?;
                DONE.fetch_add(put.len() as u64, Ordering::Relaxed);
            }
            Ok::<(), rowlock::Error>(())
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "enqueued", "jobs": args.jobs, "seconds": seconds}));
    Ok(())
}

/// Drains so many jobs from the first `--serve` queues (all unless given), the tuned concurrency spread over them.
pub(crate) async fn drain<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    if refused(args) {
        return Ok(());
    }
    let served = args.serve.unwrap_or(args.queues).clamp(1, args.queues);
    let jobs = args.jobs;
    let tally = Tally::new(jobs, false);
    let best = Tuning::best::<DB>("noop");
    let slots = args.concurrency.unwrap_or(best.concurrency).div_ceil(served);
    let worker = Worker::new(rowlock).state(tally.clone()).connections(1);
    let worker = match args.prefetch {
        Some(jobs) => worker.prefetch(jobs.div_ceil(served)),
        None => worker,
    };
    let worker = (0..served).fold(worker, |worker, no| worker.queue(queue(no), slots));
    let worker = (0..args.kinds).fold(worker, handle::<DB>);
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
        "queues_served": served,
        "claims": claims,
        "jobs_per_claim": counters.claimed() as f64 / claims.max(1) as f64,
    }));
    if served == args.queues {
        let mut sum = 0;
        for kind in 0..args.kinds {
            sum += left(rowlock, &format!("k{kind}")).await?;
        }
        ensure!(sum == 0, "{sum} jobs are left after the drain");
    }
    Ok(())
}
