//! taskito-core on SQLite, at the fastest durable settings found.
//!
//! Why this one as the second peer on SQLite: SQLite is its default store, it is maintained, and of the crates
//! weighed it alone enqueues, claims and completes in groups, so it is the hardest one to beat. fang takes one job
//! per poll and has no bulk enqueue; effectum groups its writes too, but had no release since 2024 and fixes
//! `synchronous = NORMAL`; durare runs workflows that are checkpointed step by step, which is another kind of work.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, fill, handled, locked_version, stuck_forever};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use taskito_core::{
    Job, NewJob, SchedulerConfig, SqliteStorage, StorageBackend, TaskError, Worker, WorkerHandle, now_millis,
};

/// SQLite has one writer: with one connection the writers of this process queue up in the pool, with more they would
/// meet in SQLite's busy handler, which sleeps.
const CONNECTIONS: u32 = 1;
const CHUNK: usize = 1000;
/// So many jobs are claimed together, and what has ended meanwhile is completed together; 100 and 500 were slower,
/// 4000 and more connections no faster.
const DRAIN_WORKERS: usize = 2000;
/// A business handler blocks a thread while it waits for the connection; 4 and 16 were slower.
const BOOK_WORKERS: usize = 64;
const POLL: Duration = Duration::from_millis(5);

diesel::table! {
    bench_account (id) {
        id -> BigInt,
        total -> BigInt,
    }
}

diesel::table! {
    bench_entry (job) {
        job -> BigInt,
        account -> BigInt,
    }
}

#[derive(Serialize, Deserialize)]
struct BenchJob {
    number: i64,
    #[serde(default)]
    fill: String,
}

struct Taskito {
    storage: SqliteStorage,
}

impl Peer for Taskito {
    /// Dropping the handle leaves the worker running; the process ends with the verb.
    type Running = WorkerHandle;

    fn about() -> Value {
        let file = "WAL, synchronous FULL set on each connection (its default is NORMAL), pool 1";
        json!({
            "event": "about",
            "name": "taskito-core",
            "version": locked_version(include_str!("../Cargo.lock"), "taskito-core"),
            "settings": {
                "enqueue": format!("enqueue_batch of {CHUNK}; {file}"),
                "drain": format!("num_workers and batch_size {DRAIN_WORKERS}, poll 5 ms, async handler; {file}"),
                "book": format!("num_workers and batch_size {BOOK_WORKERS}; the handler commits its own \
                    transaction, the job is completed after it, a follow-up is enqueued after it; {file}"),
                "life": format!("as drain and enqueue at once; {file}"),
                "pickup": format!("as drain: it polls; {file}"),
                "defaults": "num_workers 4, batch_size 1, poll 50 ms, WAL, synchronous FULL",
            },
            "keeps_history": true,
            "completes_in_handlers_tx": false,
            "fenced": false,
        })
    }

    async fn setup(url: &str) -> Result<()> {
        open(url).map(drop)
    }

    async fn connect(url: &str, _: Tuning) -> Result<Self> {
        Ok(Self { storage: open(url)? })
    }

    fn producers(&self) -> Producers {
        Producers { count: 1, chunk: CHUNK }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let jobs = numbers.map(|number| {
            new_job(
                name(kind),
                &BenchJob {
                    number,
                    fill: fill(number, payload),
                },
            )
        });
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let storage = self.storage.clone();
        tokio::task::spawn_blocking(move || storage.enqueue_batch(jobs)).await??;
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<Self::Running> {
        let kind = name(work.kind);
        let mut worker = Worker::new(StorageBackend::Sqlite(self.storage.clone())).queues([kind]);
        if work.tuning != Tuning::Defaults {
            let count = if work.kind == Kind::Book {
                BOOK_WORKERS
            } else {
                DRAIN_WORKERS
            };
            let scheduler = SchedulerConfig {
                poll_interval: POLL,
                batch_size: count,
                ..SchedulerConfig::default()
            };
            worker = worker.num_workers(count).scheduler_config(scheduler);
        }
        let worker = match work.kind {
            Kind::Noop => worker.register_async(kind, noop),
            Kind::Stuck => worker.register_async(kind, stuck),
            Kind::Book => {
                let storage = self.storage.clone();
                worker.register(kind, move |job: &Job| match book(&storage, job, work.next) {
                    Ok(()) => Ok(None),
                    Err(error) => Err(TaskError::retryable(format!("{error:#}"))),
                })
            }
        };
        Ok(worker.spawn()?)
    }

    /// Ended jobs move to another table; a job that is still here is waiting or running.
    async fn left(&self, _: u64) -> Result<i64> {
        #[derive(QueryableByName)]
        struct Left {
            #[diesel(sql_type = BigInt)]
            left_here: i64,
        }
        let sql = "select exists (select 1 from jobs where queue in ('noop', 'book')) as left_here";
        let row: Left = diesel::sql_query(sql).get_result(&mut self.storage.conn()?)?;
        Ok(row.left_here)
    }
}

/// One storage for everything in this process, as an application would have it.
fn open(url: &str) -> Result<SqliteStorage> {
    static STORAGE: OnceLock<SqliteStorage> = OnceLock::new();
    if let Some(storage) = STORAGE.get() {
        return Ok(storage.clone());
    }
    let path = url
        .strip_prefix("sqlite:")
        .context("DATABASE_URL is not sqlite:<path>")?;
    let storage = SqliteStorage::with_pool_size(path, CONNECTIONS)?;
    // All connections together, so that each is set; they outlive any run.
    let connections = (0..CONNECTIONS)
        .map(|_| storage.conn())
        .collect::<Result<Vec<_>, _>>()?;
    for mut connection in connections {
        diesel::sql_query("pragma synchronous = full").execute(&mut connection)?;
    }
    Ok(STORAGE.get_or_init(|| storage).clone())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Noop => "noop",
        Kind::Book => "book",
        Kind::Stuck => "stuck",
    }
}

/// Retries and timeout as in the example of its documentation.
fn new_job(queue: &str, payload: &BenchJob) -> Result<NewJob> {
    Ok(NewJob {
        queue: queue.to_owned(),
        task_name: queue.to_owned(),
        payload: serde_json::to_vec(payload)?,
        priority: 0,
        scheduled_at: now_millis(),
        max_retries: 3,
        timeout_ms: 30_000,
        unique_key: None,
        metadata: None,
        notes: None,
        depends_on: Vec::new(),
        expires_at: None,
        result_ttl_ms: None,
        namespace: None,
    })
}

type Ended = Result<Option<Vec<u8>>, TaskError>;

async fn noop(job: Job) -> Ended {
    let decoded: BenchJob =
        serde_json::from_slice(&job.payload).map_err(|error| TaskError::fatal(error.to_string()))?;
    handled(decoded.number);
    Ok(None)
}

async fn stuck(_: Job) -> Ended {
    stuck_forever().await;
    Ok(None)
}

fn book(storage: &SqliteStorage, job: &Job, next: bool) -> Result<()> {
    let number = serde_json::from_slice::<BenchJob>(&job.payload)?.number;
    let at = number % 10_000;
    let mut connection = storage.conn()?;
    connection.immediate_transaction(|connection| {
        diesel::update(bench_account::table.find(at))
            .set(bench_account::total.eq(bench_account::total + 1))
            .execute(connection)?;
        diesel::insert_into(bench_entry::table)
            .values((bench_entry::job.eq(number), bench_entry::account.eq(at)))
            .execute(connection)
    })?;
    drop(connection);
    if next {
        // Its enqueue takes a separate connection: it cannot join the transaction above.
        storage.enqueue(new_job(
            "after",
            &BenchJob {
                number,
                fill: String::new(),
            },
        )?)?;
    }
    handled(number);
    Ok(())
}

fn main() {
    bench_peer_common::main::<Taskito>()
}
