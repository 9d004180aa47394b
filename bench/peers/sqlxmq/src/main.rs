//! sqlxmq.
//!
//! At its best: bulk insert by its SQL function `mq_insert` (its Rust API spawns one job per call), several hundred
//! jobs in one poll, and a first retry after 60 s instead of 1 s, which spares the keep-alive update of jobs that wait
//! for a connection. Each job is completed by a separate statement; business jobs use `complete_with_transaction`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::ops::Range;

use anyhow::{Context, Result};
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, dial, fill, handled, locked_version, stuck_forever};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use sqlxmq::{CurrentJob, JobBuilder, JobRegistry, JobRunnerHandle, job};
use uuid::Uuid;

const CHANNEL: &str = "bench";

#[derive(Deserialize, Serialize)]
struct Payload {
    number: i64,
    #[serde(default)]
    fill: String,
}

/// Whether a book handler enqueues a follow-up job.
#[derive(Clone, Copy)]
struct Next(bool);

type JobResult = Result<(), Box<dyn Error + Send + Sync + 'static>>;

#[job]
async fn noop(mut current_job: CurrentJob) -> JobResult {
    handled(payload(&current_job)?.number);
    current_job.complete().await?;
    Ok(())
}

/// The business transaction, with the completion and the follow-up job inside it.
#[job]
async fn book(mut current_job: CurrentJob, next: Next) -> JobResult {
    let number = payload(&current_job)?.number;
    let account = number % 10_000;
    let mut tx = current_job.pool().clone().begin().await?;
    sqlx::query("update bench_account set total = total + 1 where id = $1")
        .bind(account)
        .execute(&mut *tx)
        .await?;
    sqlx::query("insert into bench_entry (job, account) values ($1, $2)")
        .bind(number)
        .bind(account)
        .execute(&mut *tx)
        .await?;
    if next.0 {
        JobBuilder::new("after")
            .set_channel_name("after")
            .set_json(&json!({"number": number}))?
            .spawn(&mut *tx)
            .await?;
    }
    current_job.complete_with_transaction(tx).await?;
    handled(number);
    Ok(())
}

#[job]
async fn stuck(mut current_job: CurrentJob) -> JobResult {
    stuck_forever().await;
    current_job.complete().await?;
    Ok(())
}

fn payload(job: &CurrentJob) -> Result<Payload> {
    job.json()?.context("the job has no payload")
}

struct Sqlxmq {
    pool: PgPool,
    tuning: Tuning,
}

impl Peer for Sqlxmq {
    type Running = JobRunnerHandle;

    fn about() -> serde_json::Value {
        json!({
            "event": "about",
            "name": "sqlxmq",
            "version": locked_version(include_str!("../Cargo.lock"), "sqlxmq"),
            "settings": {
                "enqueue": "mq_insert of arrays, 4 producers x 1000, retry_backoff 60 s",
                "drain": "set_concurrency(256, 512), pool 16",
                "book": "set_concurrency(256, 512), complete_with_transaction, pool 16",
                "life": "as enqueue and drain, producers on a pool of their own",
                "pickup": "JobBuilder::spawn, set_concurrency(16, 32)",
                "defaults": "set_concurrency(10, 20), retry_backoff 1 s, PgPool::connect, one channel",
            },
            "keeps_history": false,
            "completes_in_handlers_tx": true,
            "fenced": false,
        })
    }

    fn cannot(tuning: Tuning) -> Option<&'static str> {
        (tuning == Tuning::PollOnly).then_some("its runner always listens and has no poll interval")
    }

    async fn setup(url: &str) -> Result<()> {
        let schema = include_str!(concat!(env!("OUT_DIR"), "/schema.sql"));
        sqlx::raw_sql(schema).execute(&PgPool::connect(url).await?).await?;
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
        Producers { count: 4, chunk: 1000 }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let job = match kind {
            Kind::Noop => noop,
            Kind::Book => book,
            Kind::Stuck => stuck,
        };
        if numbers.end - numbers.start == 1 {
            let payload = Payload {
                number: numbers.start,
                fill: fill(numbers.start, payload),
            };
            job.builder()
                .set_channel_name(CHANNEL)
                .set_json(&payload)?
                .spawn(&self.pool)
                .await?;
            return Ok(());
        }
        const INSERT: &str = "select mq_insert(array_agg((id, interval '0', 4, interval '60 s', $3, '', null, false, \
            $4, payload, null)::mq_new_t)) from unnest($1::uuid[], $2::text[]) as job (id, payload)";
        let payloads = numbers
            .map(|number| {
                serde_json::to_string(&Payload {
                    number,
                    fill: fill(number, payload),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let ids: Vec<Uuid> = payloads.iter().map(|_| Uuid::new_v4()).collect();
        sqlx::query(INSERT)
            .bind(ids)
            .bind(payloads)
            .bind(CHANNEL)
            .bind(job.name())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<JobRunnerHandle> {
        let mut registry = JobRegistry::new(&[noop, book, stuck]);
        registry.set_context(Next(work.next));
        registry.set_error_handler(|name, error| eprintln!("{name}: {error:?}"));
        let (least, most) = match self.tuning {
            Tuning::Noop | Tuning::Book => (dial("slots", 512) / 2, dial("slots", 512)),
            Tuning::Pickup | Tuning::PollOnly => (16, 32),
            Tuning::Defaults => (10, 20),
        };
        // Without a channel it would also take the follow-up jobs, which no worker is to serve.
        let runner = registry
            .runner(&self.pool)
            .set_channel_names(&[CHANNEL])
            .set_concurrency(least, most)
            .run()
            .await?;
        Ok(runner)
    }

    async fn left(&self, _: u64) -> Result<i64> {
        const LEFT: &str = "select count(*) from mq_msgs where channel_name = $1 and id <> uuid_nil()";
        Ok(sqlx::query_scalar(LEFT).bind(CHANNEL).fetch_one(&self.pool).await?)
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
    bench_peer_common::main::<Sqlxmq>()
}
