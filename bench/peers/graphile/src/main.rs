//! graphile_worker, the Rust rewrite of Graphile Worker.
//!
//! Tuned: a local queue that fetches thousands of jobs in one batch (without it each job is fetched alone), 128
//! slots, completions flushed together every 5 ms, bulk insert by `add_jobs`. A completed job is deleted. It cannot
//! complete a job in the handler's transaction, so a business job commits first and is completed by the batch after.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, dial, fill, handled, locked_version, stuck_forever};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, WorkerContext, WorkerContextExt, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinHandle;

#[derive(Clone, Deserialize, Serialize)]
struct Noop {
    number: i64,
    fill: String,
}

#[derive(Clone, Deserialize, Serialize)]
struct Book {
    number: i64,
    fill: String,
}

#[derive(Deserialize, Serialize)]
struct Stuck {
    number: i64,
}

/// Whether a book handler enqueues a follow-up job.
#[derive(Clone, Debug)]
struct Next(bool);

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        handled(self.number);
    }
}

impl TaskHandler for Book {
    const IDENTIFIER: &'static str = "book";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        book(self.number, context).await.map_err(|error| format!("{error:#}"))
    }
}

impl TaskHandler for Stuck {
    const IDENTIFIER: &'static str = "stuck";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        stuck_forever().await;
    }
}

/// The business transaction; the follow-up job joins it, the completion cannot.
async fn book(number: i64, context: WorkerContext) -> Result<()> {
    let account = number % 10_000;
    let mut tx = context.pg_pool().begin().await?;
    sqlx::query("update bench_account set total = total + 1 where id = $1")
        .bind(account)
        .execute(&mut *tx)
        .await?;
    sqlx::query("insert into bench_entry (job, account) values ($1, $2)")
        .bind(number)
        .bind(account)
        .execute(&mut *tx)
        .await?;
    if context.get_ext::<Next>().is_some_and(|next| next.0) {
        context
            .utils()
            .with_executor(&mut tx)
            .add_raw_job("after", json!({"number": number}), JobSpec::default())
            .await?;
    }
    tx.commit().await?;
    handled(number);
    Ok(())
}

struct Graphile {
    pool: PgPool,
    tuning: Tuning,
    /// Knows the ids of the kinds, so that `add_jobs` need not look them up.
    utils: WorkerUtils,
}

impl Peer for Graphile {
    type Running = JoinHandle<()>;

    fn about() -> serde_json::Value {
        json!({
            "event": "about",
            "name": "graphile_worker",
            "version": locked_version(include_str!("../Cargo.lock"), "graphile_worker"),
            "settings": {
                "enqueue": "add_jobs, 4 producers x 2500",
                "drain": "concurrency 128, 2 local queues of 2500, complete_job_batch_delay 5 ms, poll 100 ms, pool 16",
                "book": "concurrency 32, 2 local queues of 500, complete_job_batch_delay 5 ms, poll 100 ms, pool 16",
                "life": "as enqueue and drain, producers on a pool of their own",
                "pickup": "concurrency 16, no local queue, poll 100 ms",
                "defaults": "concurrency 5, nothing else",
            },
            "keeps_history": false,
            "completes_in_handlers_tx": false,
            "fenced": false,
        })
    }

    async fn setup(url: &str) -> Result<()> {
        WorkerOptions::default()
            .pg_pool(PgPool::connect(url).await?)
            .init()
            .await?;
        Ok(())
    }

    async fn connect(url: &str, tuning: Tuning) -> Result<Self> {
        let pool = match tuning {
            // What `database_url` opens when nothing is said.
            Tuning::Defaults => PgPoolOptions::new().max_connections(20).connect(url).await?,
            _ => warm_pool(url).await?,
        };
        let known = WorkerOptions::default()
            .pg_pool(pool.clone())
            .define_job::<Noop>()
            .define_job::<Book>();
        let utils = known.define_job::<Stuck>().init().await?.create_utils();
        Ok(Self { pool, tuning, utils })
    }

    fn producers(&self) -> Producers {
        Producers { count: 4, chunk: 2500 }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let spec = JobSpec::default();
        if numbers.end - numbers.start == 1 {
            let number = numbers.start;
            match kind {
                Kind::Noop => {
                    self.utils
                        .add_job(
                            Noop {
                                number,
                                fill: fill(number, payload),
                            },
                            spec,
                        )
                        .await?
                }
                Kind::Book => {
                    self.utils
                        .add_job(
                            Book {
                                number,
                                fill: fill(number, payload),
                            },
                            spec,
                        )
                        .await?
                }
                Kind::Stuck => self.utils.add_job(Stuck { number }, spec).await?,
            };
            return Ok(());
        }
        match kind {
            Kind::Noop => {
                let jobs: Vec<_> = numbers
                    .map(|number| {
                        (
                            Noop {
                                number,
                                fill: fill(number, payload),
                            },
                            &spec,
                        )
                    })
                    .collect();
                self.utils.add_jobs(&jobs).await?;
            }
            Kind::Book => {
                let jobs: Vec<_> = numbers
                    .map(|number| {
                        (
                            Book {
                                number,
                                fill: fill(number, payload),
                            },
                            &spec,
                        )
                    })
                    .collect();
                self.utils.add_jobs(&jobs).await?;
            }
            Kind::Stuck => anyhow::bail!("there is only one stuck job"),
        }
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<JoinHandle<()>> {
        let options = WorkerOptions::default()
            .pg_pool(self.pool.clone())
            .add_extension(Next(work.next));
        // Only kinds named here are fetched.
        let options = match work.kind {
            Kind::Noop => options.define_job::<Noop>(),
            Kind::Book => options.define_job::<Book>(),
            Kind::Stuck => options.define_job::<Stuck>(),
        };
        let best = |options: WorkerOptions| {
            options
                .poll_interval(Duration::from_millis(100))
                .complete_job_batch_delay(Duration::from_millis(dial("flush-ms", 5) as u64))
        };
        let local = |size| {
            LocalQueueConfig::default()
                .with_size(dial("fetch", size))
                .with_queue_count(dial("local-queues", 2))
        };
        let options = match self.tuning {
            Tuning::Noop => best(options).concurrency(dial("slots", 128)).local_queue(local(2500)),
            Tuning::Book => best(options).concurrency(dial("slots", 32)).local_queue(local(500)),
            Tuning::Pickup => best(options).concurrency(16),
            Tuning::PollOnly => best(options).concurrency(16).use_notification_delivery(false),
            Tuning::Defaults => options.concurrency(5),
        };
        let worker = options.init().await?;
        Ok(tokio::spawn(async move {
            let ended = worker.run().await;
            eprintln!("the worker ended: {ended:?}");
        }))
    }

    async fn left(&self, _: u64) -> Result<i64> {
        const LEFT: &str = "select count(*) from graphile_worker._private_jobs where task_id in \
            (select id from graphile_worker._private_tasks where identifier <> 'after')";
        Ok(sqlx::query_scalar(LEFT).fetch_one(&self.pool).await?)
    }
}

async fn warm_pool(url: &str) -> Result<PgPool> {
    let connections = dial("connections", 16);
    let pool = PgPoolOptions::new()
        .max_connections(connections as u32)
        .connect(url)
        .await?;
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(pool.acquire().await?);
    }
    drop(opened);
    Ok(pool)
}

fn main() {
    bench_peer_common::main::<Graphile>()
}
