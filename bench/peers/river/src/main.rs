//! riverqueue, River's own Rust client, on PostgreSQL and on SQLite (`DATABASE_URL=sqlite:<path>`).
//!
//! At its best: 1 ms is the smallest fetch cooldown it accepts (default 100 ms; it also bounds how often the
//! *inserting* client notifies, so both sides get it), 500 slots for no-op jobs, and `job_complete_tx` for business
//! jobs. Its `insert_many` sends one INSERT per row, hence several producers on PostgreSQL.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_peer_common::{Kind, Peer, Producers, Tuning, Work, dial, fill, handled, locked_version, stuck_forever};
use riverqueue::database::{begin_postgres, begin_sqlite_write};
use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::sqlx::postgres::PgPoolOptions;
use riverqueue::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use riverqueue::sqlx::{self, PgPool, SqlitePool};
use riverqueue::{
    BoxError, Client, ClientBuilder, InsertOpts, Job, JobArgs, QueueConfig, RunHandle, WorkContext, WorkOutcome,
    Workers,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

const COOLDOWN: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(100);

#[derive(Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    number: i64,
    fill: String,
}

#[derive(Deserialize, JobArgs, Serialize)]
#[river(kind = "book")]
struct Book {
    number: i64,
    fill: String,
}

#[derive(Deserialize, JobArgs, Serialize)]
#[river(kind = "after")]
struct After {
    number: i64,
}

#[derive(Deserialize, JobArgs, Serialize)]
#[river(kind = "stuck")]
struct Stuck {
    number: i64,
}

#[derive(Clone)]
enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

struct River {
    pool: Pool,
    tuning: Tuning,
    /// Inserts only; the worker is a separate client.
    inserter: Client,
}

impl Peer for River {
    type Running = RunHandle;

    fn about() -> serde_json::Value {
        json!({
            "event": "about",
            "name": "riverqueue",
            "version": locked_version(include_str!("../Cargo.lock"), "riverqueue"),
            "settings": {
                "enqueue": "insert_many, 8 producers x 500 (SQLite: 1 x 500)",
                "drain": "max_workers 500, fetch_cooldown 1 ms, poll 100 ms, pool 16 (SQLite: max_workers 2000, pool 5, WAL, synchronous FULL)",
                "book": "max_workers 200, fetch_cooldown 1 ms (client 100 ms), job_complete_tx and insert in the handler's transaction, pool 16",
                "life": "as enqueue and drain, producers on a pool of their own",
                "pickup": "fetch_cooldown 1 ms on both clients, poll 100 ms",
                "defaults": "QueueConfig::new(10), PgPool::connect, nothing else",
            },
            "keeps_history": true,
            "completes_in_handlers_tx": true,
            "fenced": false,
        })
    }

    async fn setup(url: &str) -> Result<()> {
        match Pool::connect(url, Tuning::Defaults).await? {
            Pool::Postgres(pool) => PostgresMigrator::new(pool).migrate_up().await?,
            Pool::Sqlite(pool) => SqliteMigrator::new(pool).migrate_up().await?,
        };
        Ok(())
    }

    async fn connect(url: &str, tuning: Tuning) -> Result<Self> {
        let pool = Pool::connect(url, tuning).await?;
        let inserter = pool.client(tuning).build()?;
        Ok(Self { pool, tuning, inserter })
    }

    fn producers(&self) -> Producers {
        match self.pool {
            Pool::Postgres(_) => Producers { count: 8, chunk: 500 },
            Pool::Sqlite(_) => Producers { count: 1, chunk: 500 },
        }
    }

    async fn put(&self, kind: Kind, numbers: Range<i64>, payload: usize) -> Result<()> {
        let client = &self.inserter;
        match kind {
            Kind::Noop => {
                client
                    .insert_many(numbers.map(|number| Noop {
                        number,
                        fill: fill(number, payload),
                    }))
                    .await?;
            }
            Kind::Book => {
                client
                    .insert_many(numbers.map(|number| Book {
                        number,
                        fill: fill(number, payload),
                    }))
                    .await?;
            }
            Kind::Stuck => {
                client.insert_many(numbers.map(|number| Stuck { number })).await?;
            }
        }
        Ok(())
    }

    async fn start(&self, work: Work) -> Result<RunHandle> {
        let mut workers = Workers::new();
        workers.add_fn(noop)?;
        workers.add_fn(stuck)?;
        let pool = self.pool.clone();
        workers.add_fn(move |context: WorkContext, job: Job<Book>| book(pool.clone(), context, job.args, work.next))?;
        // A handler may only insert kinds its client knows; none of these jobs is ever worked.
        workers.add_fn(|_: WorkContext, _: Job<After>| async { Ok::<_, BoxError>(WorkOutcome::Complete) })?;
        let best = |slots| {
            QueueConfig::new(slots)
                .with_fetch_poll_interval(POLL)
                .with_fetch_cooldown(COOLDOWN)
        };
        let most = if matches!(self.pool, Pool::Postgres(_)) {
            500
        } else {
            2000
        };
        let queue = match self.tuning {
            Tuning::Noop => best(dial("slots", most)),
            Tuning::Book => best(dial("slots", 200)),
            Tuning::Pickup | Tuning::PollOnly => best(64),
            Tuning::Defaults => QueueConfig::new(10),
        };
        let mut run = self
            .pool
            .client(self.tuning)
            .workers(workers)
            .queue("default", queue)
            .build()?
            .start()?;
        run.wait_ready().await?;
        Ok(run)
    }

    async fn left(&self, _: u64) -> Result<i64> {
        // Every state but `completed`, spelled out so that the fetch index answers.
        const LEFT: &str = "select count(*) from river_job where queue = 'default' and state in \
            ('available', 'running', 'retryable', 'scheduled', 'pending', 'cancelled', 'discarded')";
        Ok(match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(LEFT).fetch_one(pool).await?,
            Pool::Sqlite(pool) => sqlx::query_scalar(LEFT).fetch_one(pool).await?,
        })
    }
}

impl Pool {
    async fn connect(url: &str, tuning: Tuning) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let options = SqliteConnectOptions::from_str(&format!("sqlite://{}", path.trim_start_matches("//")))?
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(Duration::from_secs(5));
            return Ok(Self::Sqlite(
                SqlitePoolOptions::new()
                    .max_connections(dial("connections", 5) as u32)
                    .connect_with(options)
                    .await?,
            ));
        }
        if tuning == Tuning::Defaults {
            return Ok(Self::Postgres(PgPool::connect(url).await?));
        }
        let connections = dial("connections", 16);
        let pool = PgPoolOptions::new()
            .max_connections(connections as u32)
            .connect(url)
            .await?;
        let mut opened = Vec::new();
        for _ in 0..connections {
            opened.push(pool.acquire().await?);
        }
        Ok(Self::Postgres(pool))
    }

    fn client(&self, tuning: Tuning) -> ClientBuilder {
        let builder = match self {
            Self::Postgres(pool) => Client::builder(pool.clone()),
            Self::Sqlite(pool) => Client::builder(pool.clone()),
        };
        match tuning {
            // A client's own cooldown bounds how often its inserts notify: a NOTIFY in every handler's transaction
            // would make their commits wait for each other.
            Tuning::Defaults | Tuning::Book => builder,
            Tuning::PollOnly => builder.fetch_cooldown(COOLDOWN).without_notifications(),
            _ => builder.fetch_cooldown(COOLDOWN),
        }
    }
}

async fn noop(_: WorkContext, job: Job<Noop>) -> Result<WorkOutcome, BoxError> {
    handled(job.args.number);
    Ok(WorkOutcome::Complete)
}

async fn stuck(_: WorkContext, _: Job<Stuck>) -> Result<WorkOutcome, BoxError> {
    stuck_forever().await;
    Ok(WorkOutcome::Complete)
}

/// The business transaction, with River's completion and the follow-up job inside it.
async fn book(pool: Pool, context: WorkContext, args: Book, next: bool) -> Result<WorkOutcome, BoxError> {
    const UPDATE: &str = "update bench_account set total = total + 1 where id = $1";
    const INSERT: &str = "insert into bench_entry (job, account) values ($1, $2)";
    let account = args.number % 10_000;
    let client = context.client().context("a worked job has a client")?;
    let after = || {
        client
            .insert(After { number: args.number })
            .opts(InsertOpts::default().with_queue("after"))
    };
    match &pool {
        Pool::Postgres(pool) => {
            let mut tx = begin_postgres(pool).await?;
            sqlx::query(UPDATE).bind(account).execute(&mut *tx).await?;
            sqlx::query(INSERT)
                .bind(args.number)
                .bind(account)
                .execute(&mut *tx)
                .await?;
            if next {
                after().tx(&mut tx).await?;
            }
            context.job_complete_tx(&mut tx).await?;
            tx.commit().await?;
        }
        Pool::Sqlite(pool) => {
            let mut tx = begin_sqlite_write(pool).await?;
            sqlx::query(UPDATE).bind(account).execute(&mut *tx).await?;
            sqlx::query(INSERT)
                .bind(args.number)
                .bind(account)
                .execute(&mut *tx)
                .await?;
            if next {
                after().tx(&mut tx).await?;
            }
            context.job_complete_tx(&mut tx).await?;
            tx.commit().await?;
        }
    }
    handled(args.number);
    Ok(WorkOutcome::Complete)
}

fn main() {
    bench_peer_common::main::<River>()
}
