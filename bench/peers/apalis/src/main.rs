//! apalis with apalis-postgres.
//!
//! Tuned: `push_tasks` of 2500 in one transaction, 1000 fetched in one batch, woken by LISTEN and a 100 ms poll. apalis
//! gives each queue a separate worker, so a queue here is a kind. It records results by itself after the
//! handler returned: a business job commits first and is completed by the next batch of results.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use apalis::prelude::*;
use apalis_postgres::queries::push_tasks;
use apalis_postgres::{Config, PgTask, PostgresStorage, Pubsub};
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, dial, fill, handled, locked_version, stuck_forever};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinHandle;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Job {
    number: i64,
    #[serde(default)]
    fill: String,
}

/// What the handler needs beside the job.
#[derive(Clone)]
struct Desk {
    pool: PgPool,
    work: Work,
}

struct Apalis {
    pool: PgPool,
    tuning: Tuning,
}

impl Peer for Apalis {
    type Running = JoinHandle<()>;

    fn about() -> serde_json::Value {
        json!({
            "event": "about",
            "name": "apalis-postgres",
            "version": locked_version(include_str!("../Cargo.lock"), "apalis-postgres"),
            "settings": {
                "enqueue": "queries::push_tasks, 4 producers x 2500",
                "drain": "batch_size 1000, concurrency 64, LISTEN + poll 100 ms, pool 16",
                "book": "batch_size 1000, concurrency 64, LISTEN + poll 100 ms, pool 16",
                "life": "as enqueue and drain, producers on a pool of their own",
                "pickup": "batch_size 100, concurrency 64, LISTEN + poll 100 ms",
                "defaults": "PostgresStorage::new, WorkerBuilder without layers, PgPool::connect",
            },
            "keeps_history": true,
            "completes_in_handlers_tx": false,
            "fenced": false,
        })
    }

    async fn setup(url: &str) -> Result<()> {
        PostgresStorage::setup(&PgPool::connect(url).await?).await?;
        Ok(())
    }

    async fn connect(url: &str, tuning: Tuning) -> Result<Self> {
        let pool = match tuning {
            Tuning::Defaults => PgPool::connect(url).await?,
            _ => warm_pool(url).await?,
        };
        Ok(Self { pool, tuning })
    }

    fn producers(&self) -> Producers {
        Producers { count: 4, chunk: 2500 }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let jobs = numbers
            .map(|number| {
                encoded(&Job {
                    number,
                    fill: fill(number, payload),
                })
            })
            .collect::<Result<Vec<PgTask>>>()?;
        let mut tx = self.pool.begin().await?;
        push_tasks(&mut *tx, queue(kind), jobs).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<JoinHandle<()>> {
        let queue = queue(work.kind);
        let config = Config::default().queue(queue);
        let desk = Desk {
            pool: self.pool.clone(),
            work,
        };
        // Two workers of one name would share their locks.
        let name = format!("bench-{}", std::process::id());
        if self.tuning == Tuning::Defaults {
            let backend = PostgresStorage::<Job>::new(&self.pool).with_config(config);
            let worker = WorkerBuilder::new(name).backend(backend).data(desk).build(handle);
            return Ok(tokio::spawn(async move { ended(worker.run().await) }));
        }
        let wake = match self.tuning {
            Tuning::PollOnly => Strategy::new(),
            _ => Strategy::new().stream(Pubsub::new(self.pool.clone(), queue.to_owned())),
        };
        let batch = if matches!(self.tuning, Tuning::Noop | Tuning::Book) {
            dial("fetch", 1000)
        } else {
            100
        };
        let backend = PostgresStorage::<Job>::new(&self.pool)
            .with_config(config.batch_size(batch))
            .poll_with_strategy(wake.interval(Duration::from_millis(100)));
        let worker = WorkerBuilder::new(name)
            .backend(backend)
            .concurrency(dial("slots", 64))
            .data(desk)
            .build(handle);
        Ok(tokio::spawn(async move { ended(worker.run().await) }))
    }

    async fn left(&self, _: u64) -> Result<i64> {
        const LEFT: &str = "select count(*) from apalis.jobs where job_type <> 'after' and status <> 'Done'";
        Ok(sqlx::query_scalar(LEFT).fetch_one(&self.pool).await?)
    }
}

async fn handle(job: Job, desk: Data<Desk>) -> Result<(), BoxDynError> {
    match desk.work.kind {
        Kind::Noop => handled(job.number),
        Kind::Book => book(&desk.pool, job.number, desk.work.next).await?,
        Kind::Stuck => stuck_forever().await,
    }
    Ok(())
}

/// The business transaction; the follow-up job joins it, the completion cannot.
async fn book(pool: &PgPool, number: i64, next: bool) -> Result<()> {
    let account = number % 10_000;
    let mut tx = pool.begin().await?;
    sqlx::query("update bench_account set total = total + 1 where id = $1")
        .bind(account)
        .execute(&mut *tx)
        .await?;
    sqlx::query("insert into bench_entry (job, account) values ($1, $2)")
        .bind(number)
        .bind(account)
        .execute(&mut *tx)
        .await?;
    if next {
        push_tasks(&mut *tx, "after", vec![encoded(&json!({"number": number}))?]).await?;
    }
    tx.commit().await?;
    handled(number);
    Ok(())
}

fn queue(kind: Kind) -> &'static str {
    match kind {
        Kind::Noop => "noop",
        Kind::Book => "book",
        Kind::Stuck => "stuck",
    }
}

fn encoded(job: &impl Serialize) -> Result<PgTask> {
    let bytes = serde_json::to_vec(job).context("a job is JSON")?;
    Ok(TaskBuilder::new(bytes).build())
}

fn ended(how: Result<(), WorkerError>) {
    eprintln!("the worker ended: {how:?}");
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
    bench_peer_common::main::<Apalis>()
}
