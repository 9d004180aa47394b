//! awa, on its queue storage.
//!
//! At its best: COPY enqueue of 2500, 500 slots and one claimer, completions flushed every 5 ms instead of 1 (a setting
//! awa takes from the environment only, so this program starts itself anew with it). It cannot complete a job in the
//! handler's transaction; a business job commits first and is completed by the next flush.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use awa::model::insert::params_with;
use awa::model::migrations;
use awa::{
    Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, QueueStorage, QueueStorageConfig, insert_with,
};
use bench_peer_common::{Ask, Kind, Peer, Producers, Tuning, Work, dial, fill, handled, locked_version, stuck_forever};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "bench";
const FLUSH: &str = "AWA_COMPLETION_FLUSH_MS";

#[derive(Deserialize, JobArgs, Serialize)]
struct Noop {
    number: i64,
    fill: String,
}

#[derive(Deserialize, JobArgs, Serialize)]
struct Book {
    number: i64,
    fill: String,
}

#[derive(Deserialize, JobArgs, Serialize)]
struct After {
    number: i64,
}

#[derive(Deserialize, JobArgs, Serialize)]
struct Stuck {
    number: i64,
}

struct Awa {
    pool: PgPool,
    tuning: Tuning,
    storage: QueueStorage,
}

impl Peer for Awa {
    type Running = Client;

    fn about() -> serde_json::Value {
        json!({
            "event": "about",
            "name": "awa",
            "version": locked_version(include_str!("../Cargo.lock"), "awa"),
            "settings": {
                "enqueue": "QueueStorage::enqueue_params_copy, 1 producer x 2500",
                "drain": "max_workers 500, 1 claimer, poll 50 ms, AWA_COMPLETION_FLUSH_MS 5, pool 16",
                "book": "max_workers 64, 1 claimer, poll 50 ms, AWA_COMPLETION_FLUSH_MS 5, pool 16, \
                    64 enqueue_shards for follow-up jobs",
                "life": "as enqueue and drain, producers on a pool of their own",
                "pickup": "insert_with, max_workers 64, poll 50 ms, AWA_COMPLETION_FLUSH_MS 1 (its default)",
                "defaults": "QueueConfig::default(), PgPool::connect, nothing else",
            },
            "keeps_history": true,
            "completes_in_handlers_tx": false,
            "fenced": true,
        })
    }

    fn cannot(tuning: Tuning) -> Option<&'static str> {
        (tuning == Tuning::PollOnly).then_some("its workers always listen")
    }

    async fn setup(url: &str) -> Result<()> {
        let pool = PgPool::connect(url).await?;
        migrations::run(&pool).await?;
        // A first worker would switch this on; producers come first here.
        storage()?.install(&pool).await?;
        Ok(())
    }

    async fn connect(url: &str, tuning: Tuning) -> Result<Self> {
        let pool = match tuning {
            Tuning::Defaults => PgPool::connect(url).await?,
            _ => warm_pool(url).await?,
        };
        Ok(Self {
            pool,
            tuning,
            storage: storage()?,
        })
    }

    fn producers(&self) -> Producers {
        Producers { count: 1, chunk: 2500 }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        if kind == Kind::Stuck {
            insert_with(&self.pool, &Stuck { number: numbers.start }, opts(QUEUE)).await?;
            return Ok(());
        }
        if numbers.end - numbers.start == 1 {
            let number = numbers.start;
            let fill = fill(number, payload);
            match kind {
                Kind::Book => insert_with(&self.pool, &Book { number, fill }, opts(QUEUE)).await?,
                _ => insert_with(&self.pool, &Noop { number, fill }, opts(QUEUE)).await?,
            };
            return Ok(());
        }
        let mut jobs = Vec::with_capacity((numbers.end - numbers.start) as usize);
        for number in numbers {
            let fill = fill(number, payload);
            jobs.push(match kind {
                Kind::Book => params_with(&Book { number, fill }, opts(QUEUE))?,
                _ => params_with(&Noop { number, fill }, opts(QUEUE))?,
            });
        }
        self.storage.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<Client> {
        let best = |slots: usize| QueueConfig {
            max_workers: slots as u32,
            poll_interval: Duration::from_millis(50),
            ..QueueConfig::default()
        };
        let queue = match self.tuning {
            Tuning::Noop => best(dial("slots", 500)),
            Tuning::Book | Tuning::Pickup | Tuning::PollOnly => best(dial("slots", 64)),
            Tuning::Defaults => QueueConfig::default(),
        };
        let pool = self.pool.clone();
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, queue)
            .register::<Noop, _, _>(|args, _| async move {
                handled(args.number);
                Ok(JobResult::Completed)
            })
            .register::<Book, _, _>(move |args, _| {
                let pool = pool.clone();
                async move {
                    book(&pool, args.number, work.next)
                        .await
                        .map_err(JobError::retryable_msg)?;
                    Ok(JobResult::Completed)
                }
            })
            .register::<Stuck, _, _>(|_, _| async move {
                stuck_forever().await;
                Ok(JobResult::Completed)
            })
            .build()?;
        client.start().await?;
        Ok(client)
    }

    /// The parts of awa's own exact count that say how many jobs ended; the whole of it scans every job.
    async fn left(&self, total: u64) -> Result<i64> {
        const ENDED: &str = "select (\
            (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches where queue = $1) \
            + (select coalesce(sum(terminal_delta), 0) from awa.queue_terminal_count_deltas where queue = $1) \
            + (select coalesce(sum(live_terminal_count), 0) from awa.queue_terminal_live_counts where queue = $1) \
            + (select coalesce(sum(pruned_completed_count), 0) from awa.queue_terminal_rollups where queue = $1)\
            )::bigint";
        let ended: i64 = sqlx::query_scalar(ENDED).bind(QUEUE).fetch_one(&self.pool).await?;
        Ok(total as i64 - ended)
    }
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
        insert_with(&mut *tx, &After { number }, opts("after")).await?;
    }
    tx.commit().await?;
    handled(number);
    Ok(())
}

fn opts(queue: &str) -> InsertOpts {
    InsertOpts {
        queue: queue.to_owned(),
        ..InsertOpts::default()
    }
}

fn storage() -> Result<QueueStorage> {
    Ok(QueueStorage::new(QueueStorageConfig::default())?)
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

/// Becomes the same program with the longer flush, where throughput is asked for.
fn with_longer_flush() -> std::io::Result<()> {
    let ask = Ask::from_command_line();
    let throughput = matches!(ask.verb.as_str(), "drain" | "life" | "hold") && ask.text("mode") != Some("defaults");
    if !throughput || std::env::var_os(FLUSH).is_some() {
        return Ok(());
    }
    Err(Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(FLUSH, "5")
        .exec())
}

fn main() {
    if let Err(error) = with_longer_flush() {
        eprintln!("could not set {FLUSH}: {error}");
        std::process::exit(1);
    }
    bench_peer_common::main::<Awa>()
}
