//! The business transaction alone: begin, update, insert, commit. No queue; the number comes from a counter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use protocol::{ACCOUNTS, Args, DONE, say, unsupported};
use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;

use super::{lite, pg};

/// As many as ours has for its handlers.
pub(crate) const CONNECTIONS: usize = 16;

const UPDATE: &str = "update bench_account set total = total + 1 where id = $1";
const INSERT: &str = "insert into bench_entry (job, account) values ($1, $2)";

/// Hands out the numbers.
#[derive(Clone)]
struct Numbers {
    next: Arc<AtomicI64>,
    jobs: i64,
}

impl Numbers {
    fn next(&self) -> Option<i64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.jobs).then_some(number)
    }
}

pub(crate) async fn run(url: &str, args: &Args, lite: bool) -> Result<()> {
    if args.batch.is_some() {
        unsupported("a bare transaction has one job");
        return Ok(());
    }
    let numbers = Numbers {
        next: Arc::default(),
        jobs: args.jobs as i64,
    };
    let connections = args.connections.unwrap_or(CONNECTIONS);
    let mut running = JoinSet::new();
    let began = match (lite, args.driver.as_str()) {
        (true, _) => {
            let sqlite = lite::options(url)?.connect().await?;
            let began = Instant::now();
            running.spawn(on_sqlite(sqlite, numbers));
            began
        }
        (false, "pipelined") => {
            let mut clients = Vec::new();
            for _ in 0..connections {
                clients.push(pg::connect(url).await?);
            }
            let began = Instant::now();
            for client in clients {
                running.spawn(pipelined(client, numbers.clone()));
            }
            began
        }
        (false, _) => {
            let mut clients = Vec::new();
            for _ in 0..connections {
                clients.push(PgConnection::connect(url).await?);
            }
            let began = Instant::now();
            for client in clients {
                running.spawn(on_postgres(client, numbers.clone()));
            }
            began
        }
    };
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let seconds = began.elapsed().as_secs_f64();
    say(&json!({"event": "drained", "jobs": args.jobs, "seconds": seconds, "handlers_seconds": seconds}));
    Ok(())
}

/// One await per statement, as business code is written.
async fn on_postgres(mut pg: PgConnection, numbers: Numbers) -> Result<()> {
    while let Some(number) = numbers.next() {
        let account = number % ACCOUNTS;
        let mut tx = pg.begin().await?;
        sqlx::query(UPDATE).bind(account).execute(&mut *tx).await?;
        sqlx::query(INSERT).bind(number).bind(account).execute(&mut *tx).await?;
        tx.commit().await?;
        DONE.fetch_add(1, Ordering::Relaxed);
    }
    pg.close().await?;
    Ok(())
}

/// All four in one string: what one round trip per transaction would give.
async fn pipelined(client: tokio_postgres::Client, numbers: Numbers) -> Result<()> {
    let (update, insert) = (client.prepare(UPDATE).await?, client.prepare(INSERT).await?);
    let (begin, commit) = (client.prepare("begin").await?, client.prepare("commit").await?);
    while let Some(number) = numbers.next() {
        let account = number % ACCOUNTS;
        let (what, where_to): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 2]) = ([&account], [&number, &account]);
        tokio::try_join!(
            client.execute(&begin, &[]),
            client.execute(&update, &what),
            client.execute(&insert, &where_to),
            client.execute(&commit, &[]),
        )?;
        DONE.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn on_sqlite(mut db: SqliteConnection, numbers: Numbers) -> Result<()> {
    while let Some(number) = numbers.next() {
        let account = number % ACCOUNTS;
        let mut tx = db.begin_with("begin immediate").await?;
        sqlx::query(UPDATE).bind(account).execute(&mut *tx).await?;
        sqlx::query(INSERT).bind(number).bind(account).execute(&mut *tx).await?;
        tx.commit().await?;
        DONE.fetch_add(1, Ordering::Relaxed);
    }
    db.close().await?;
    Ok(())
}
