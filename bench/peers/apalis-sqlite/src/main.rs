//! apalis on SQLite, at the fastest durable settings found.
//!
//! Its `setup` switches one connection to `synchronous = OFF`; that is not stored in the file, so the
//! programs that enqueue and work open their own connections with `synchronous = FULL`.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{self, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage, queries};
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, fill, handled, locked_version, stuck_forever};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

/// SQLite has one writer: with one connection the writers of this process queue up in the pool, with more
/// they would meet in SQLite's busy handler, which sleeps: two or four connections were two to ten times slower.
const CONNECTIONS: u32 = 1;
/// Jobs claimed per statement; their completions are written together too.
const BATCH: usize = 1000;
/// Jobs enqueued per call: one transaction, one insert per row.
const CHUNK: usize = 1000;
const POLL: Duration = Duration::from_millis(10);

#[derive(Serialize, Deserialize)]
struct BenchJob {
    number: i64,
    #[serde(default)]
    fill: String,
}

struct ApalisSqlite {
    pool: SqlitePool,
}

/// What the handler needs besides its job.
#[derive(Clone)]
struct Desk {
    pool: SqlitePool,
    work: Work,
}

impl Peer for ApalisSqlite {
    type Running = JoinHandle<()>;

    fn about() -> Value {
        let lock = include_str!("../Cargo.lock");
        let file = "WAL, synchronous FULL (its own setup would run OFF), 1 connection, statistics gathered";
        json!({
            "event": "about",
            "name": "apalis-sqlite",
            "version": locked_version(lock, "apalis-sqlite"),
            "settings": {
                "enqueue": format!("push_bulk of {CHUNK} (one insert per row in one transaction); {file}"),
                "drain": format!("batch_size {BATCH}, lock_tasks off, poll 10 ms; {file}"),
                "book": format!("as drain; the handler commits by itself, the job is completed after it; {file}"),
                "life": format!("as drain and enqueue at once; {file}"),
                "pickup": format!("batch_size {BATCH}, poll 10 ms; {file}"),
                "defaults": "batch_size 10, lock_tasks on, heartbeat only: the worker looks again every 30 s",
            },
            "keeps_history": true,
            "completes_in_handlers_tx": false,
            "fenced": false,
        })
    }

    async fn setup(url: &str) -> Result<()> {
        let pool = open(url).await?;
        SqliteStorage::setup(&pool).await?;
        gather_statistics(&pool).await
    }

    async fn connect(url: &str, _: Tuning) -> Result<Self> {
        Ok(Self { pool: open(url).await? })
    }

    fn producers(&self) -> Producers {
        Producers { count: 1, chunk: CHUNK }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let jobs = numbers
            .map(|number| BenchJob {
                number,
                fill: fill(number, payload),
            })
            .collect();
        push(&self.pool, queue(kind), jobs).await
    }

    async fn start(&self, work: Work) -> Result<Self::Running> {
        let name = worker_name(work.kind);
        let desk = Desk {
            pool: self.pool.clone(),
            work,
        };
        let config = Config::default().queue(queue(work.kind));
        let storage = SqliteStorage::<BenchJob>::new(&self.pool);
        let worker = WorkerBuilder::new(name.as_str());
        if work.tuning == Tuning::Defaults {
            let worker = worker.backend(storage.with_config(config)).data(desk).build(handle);
            return Ok(tokio::spawn(async move { ended(worker.run().await) }));
        }
        let storage = storage.with_config(config.batch_size(BATCH).lock_tasks(false));
        let worker = worker
            .backend(storage.poll_with_strategy(Ticks::default()))
            .data(desk)
            .build(handle);
        Ok(tokio::spawn(async move { ended(worker.run().await) }))
    }

    async fn left(&self, _: u64) -> Result<i64> {
        let sql = "select exists (select 1 from Jobs where job_type in ('noop', 'book') and status <> 'Done')";
        Ok(sqlx::query_scalar(sql).fetch_one(&self.pool).await?)
    }
}

/// Looks again every `POLL`. Its own interval strategy forgets to ask for the next wake-up when a tick and the answer
/// of an empty fetch arrive together; the worker then sleeps until its heartbeat, 30 s later.
#[derive(Default)]
struct Ticks {
    tick: Option<Pin<Box<Sleep>>>,
}

impl PollStrategy for Ticks {
    fn poll_drive(&mut self, cx: &mut task::Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        while self
            .tick
            .get_or_insert_with(|| Box::pin(sleep(POLL)))
            .as_mut()
            .poll(cx)
            .is_ready()
        {
            self.tick = None;
        }
        Poll::Pending
    }
}

fn ended(result: Result<(), WorkerError>) {
    eprintln!("the worker ended: {result:?}");
}

/// Fixed, as in its documentation, except where a second worker has to take over.
fn worker_name(kind: Kind) -> String {
    match kind {
        Kind::Stuck => format!("bench-stuck-{}", std::process::id()),
        _ => format!("bench-{}", queue(kind)),
    }
}

/// One pool for everything in this process, as an application would have it.
async fn open(url: &str) -> Result<SqlitePool> {
    static POOL: OnceLock<SqlitePool> = OnceLock::new();
    if let Some(pool) = POOL.get() {
        return Ok(pool.clone());
    }
    let path = url
        .strip_prefix("sqlite:")
        .context("DATABASE_URL is not sqlite:<path>")?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(120))
        .connect_with(options)
        .await?;
    Ok(POOL.get_or_init(|| pool).clone())
}

/// Gives SQLite's planner the statistics of a file in which these workers have already run jobs: half of the seed is
/// their past work, half is waiting. Without them a completion looks through every job the worker ever ran instead of
/// going by id, and 20,000 jobs are not drained in two minutes.
async fn gather_statistics(pool: &SqlitePool) -> Result<()> {
    let jobs = (0..2000)
        .map(|number| BenchJob {
            number,
            fill: String::new(),
        })
        .collect();
    push(pool, "noop", jobs).await?;
    for kind in [Kind::Noop, Kind::Book] {
        let name = worker_name(kind);
        let worker =
            "insert into Workers (id, worker_type, storage_name, layers, last_seen) values (?1, ?2, '', '', 0)";
        sqlx::query(worker).bind(&name).bind(queue(kind)).execute(pool).await?;
        let past = "update Jobs set status = 'Done', attempts = 1, lock_by = ?1, lock_at = run_at, done_at = run_at
                    where id in (select id from Jobs where status = 'Pending' limit 500)";
        sqlx::query(past).bind(&name).execute(pool).await?;
    }
    for statement in ["analyze", "delete from Jobs", "delete from Workers"] {
        sqlx::query(statement).execute(pool).await?;
    }
    Ok(())
}

async fn push(pool: &SqlitePool, queue: &str, jobs: Vec<BenchJob>) -> Result<()> {
    let mut storage = SqliteStorage::new(pool).with_config(Config::default().queue(queue));
    storage
        .push_bulk(jobs)
        .await
        .map_err(|error| anyhow::anyhow!("push_bulk: {error}"))
}

fn queue(kind: Kind) -> &'static str {
    match kind {
        Kind::Noop => "noop",
        Kind::Book => "book",
        Kind::Stuck => "stuck",
    }
}

async fn handle(job: BenchJob, desk: Data<Desk>) -> Result<(), BoxDynError> {
    match desk.work.kind {
        Kind::Noop => {}
        Kind::Book => book(&desk, job.number).await?,
        Kind::Stuck => stuck_forever().await,
    }
    handled(job.number);
    Ok(())
}

/// The completion is written later by the worker: it cannot join this transaction.
async fn book(desk: &Desk, number: i64) -> Result<(), BoxDynError> {
    let account = number % 10_000;
    let mut tx = desk.pool.begin().await?;
    sqlx::query("update bench_account set total = total + 1 where id = ?1")
        .bind(account)
        .execute(&mut *tx)
        .await?;
    sqlx::query("insert into bench_entry (job, account) values (?1, ?2)")
        .bind(number)
        .bind(account)
        .execute(&mut *tx)
        .await?;
    if desk.work.next {
        let after = TaskBuilder::new(serde_json::to_vec(&json!({ "number": number }))?).build();
        queries::push_tasks(&mut *tx, "after", &[after]).await?;
    }
    tx.commit().await?;
    Ok(())
}

fn main() {
    bench_peer_common::main::<ApalisSqlite>()
}
