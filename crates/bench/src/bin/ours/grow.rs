//! Jobs spread over many queues and many kinds.
//!
//! A kind is a type, so fifty kinds are fifty types. Job `n` goes to queue `n % queues` and is of kind `n % kinds`.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use protocol::{Args, DONE, Fill, say, unsupported};
use rowlock::{Job, Outcome, Rowlock, Staged, Worker};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::Ordering;

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

macro_rules! kinds {
    ($($no:literal $name:ident $kind:literal,)*) => {
        $(
            #[derive(Serialize, Deserialize)]
            #[serde(transparent)]
            struct $name(Payload);

            impl Job for $name {
                const KIND: &'static str = $kind;
            }
        )*

        /// Puts payloads of one kind into one queue.
        async fn put<DB: Tables>(rowlock: &Rowlock<DB>, kind: usize, queue: String, payloads: Vec<Payload>) -> Result<()> {
            match kind {
                $($no => {
                    rowlock.enqueue_all_now(payloads.into_iter().map($name)).queue(queue).await?;
                })*
                _ => anyhow::bail!("there are {KINDS_MAX} kinds, and {kind} is none of them"),
            }
            Ok(())
        }

        /// Handles one kind.
        fn handle<DB: Tables>(worker: Worker<Arc<Tally>, DB>, kind: usize) -> Worker<Arc<Tally>, DB> {
            match kind {
                $($no => worker.staged(|cx: Staged<Arc<Tally>, DB>, job: $name| count(cx, job.0)),)*
                _ => worker,
            }
        }
    };
}

kinds! {
    0 K0 "k0", 1 K1 "k1", 2 K2 "k2", 3 K3 "k3", 4 K4 "k4", 5 K5 "k5", 6 K6 "k6", 7 K7 "k7", 8 K8 "k8", 9 K9 "k9",
    10 K10 "k10", 11 K11 "k11", 12 K12 "k12", 13 K13 "k13", 14 K14 "k14", 15 K15 "k15", 16 K16 "k16", 17 K17 "k17",
    18 K18 "k18", 19 K19 "k19", 20 K20 "k20", 21 K21 "k21", 22 K22 "k22", 23 K23 "k23", 24 K24 "k24", 25 K25 "k25",
    26 K26 "k26", 27 K27 "k27", 28 K28 "k28", 29 K29 "k29", 30 K30 "k30", 31 K31 "k31", 32 K32 "k32", 33 K33 "k33",
    34 K34 "k34", 35 K35 "k35", 36 K36 "k36", 37 K37 "k37", 38 K38 "k38", 39 K39 "k39", 40 K40 "k40", 41 K41 "k41",
    42 K42 "k42", 43 K43 "k43", 44 K44 "k44", 45 K45 "k45", 46 K46 "k46", 47 K47 "k47", 48 K48 "k48", 49 K49 "k49",
}

async fn count<DB: Tables>(cx: Staged<Arc<Tally>, DB>, job: Payload) -> Outcome<DB> {
    std::hint::black_box((job.number, &job.fill));
    cx.state().count();
    cx.done().ok()
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
    let fill = Fill::new(args.payload);
    let mut lanes: BTreeMap<(usize, usize), Vec<i64>> = BTreeMap::new();
    for number in 0..args.jobs as usize {
        let lane = (number % args.queues, number % args.kinds);
        lanes.entry(lane).or_default().push(number as i64);
    }
    let chunk = Bulk::best::<DB>(args).chunk as usize;
    let began = Instant::now();
    for ((queue_no, kind), numbers) in lanes {
        for numbers in numbers.chunks(chunk) {
            let payload = |&number: &i64| Payload {
                number,
                fill: fill.of(number),
            };
            put(rowlock, kind, queue(queue_no), numbers.iter().map(payload).collect()).await?;
            DONE.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "enqueued", "jobs": args.jobs, "seconds": seconds}));
    Ok(())
}

/// Serves the first `--serve` queues (all unless given) with the tuned concurrency spread over them.
pub(crate) async fn drain<DB: Tables>(rowlock: &Rowlock<DB>, args: &Args) -> Result<()> {
    if refused(args) {
        return Ok(());
    }
    let served = args.serve.unwrap_or(args.queues).clamp(1, args.queues);
    let jobs = (0..args.jobs as usize)
        .filter(|number| number % args.queues < served)
        .count() as u64;
    let tally = Tally::new(jobs, false);
    let best = Tuning::best::<DB>("noop");
    let slots = args.concurrency.unwrap_or(best.concurrency).div_ceil(served);
    let ahead = args.prefetch.unwrap_or(best.prefetch).div_ceil(served);
    let worker = Worker::new(rowlock).state(tally.clone()).prefetch(ahead).connections(1);
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
