//! `rowlock bench`: a rough feeling for what this machine does. One process, one run, no warm-up.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use comfy_table::Cell;
use rowlock::{Ctx, Ended, Job, Outcome, Rowlock, Staged, Tx, Worker};
use serde::{Deserialize, Serialize};
use sqlx::Connection;

use super::own::{INTERRUPTED, Site, Tables, interrupted};
use crate::output::{self, right, table, text};

/// Handlers at once.
const CONCURRENCY: usize = 16;
/// Rows that the atomic jobs update, so that they seldom meet.
const ACCOUNTS: i64 = 1000;
/// A drain that takes longer is stuck.
const DRAIN_MAX: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many jobs of each kind
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "noop", queue = "noop")]
struct Noop {
    number: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "book", queue = "book")]
struct Book {
    number: i64,
}

async fn noop<DB: Tables>(cx: Staged<String, DB>, _job: Noop) -> Outcome<DB> {
    cx.done().ok()
}

async fn book<DB: Tables>(cx: Ctx<String, DB>, job: Book, mut tx: Tx<DB>) -> Outcome<DB> {
    let prefix = cx.state();
    let update = format!("update {prefix}account set total = total + 1 where id = $1");
    DB::change(&mut tx, update, vec![job.number % ACCOUNTS]).await?;
    let insert = format!("insert into {prefix}entry (account) values ($1)");
    DB::change(&mut tx, insert, vec![job.number % ACCOUNTS]).await?;
    tx.done().ok()
}

pub(crate) async fn run(database: Option<&str>, args: Args) -> Result<ExitCode> {
    let mut rows = table(["jobs/s", "enqueue", "no-op", "atomic"]);
    let mut lanes = vec![(Site::new(None, "bench")?, "SQLite")];
    if let Some(url) = database {
        lanes.push((Site::new(Some(url), "bench")?, "PostgreSQL"));
    }
    for (site, label) in lanes {
        output::note(&format!("{label}: {} jobs of each kind …", args.jobs));
        let measuring = async {
            if site.is_postgres() {
                return measure::<sqlx::Postgres>(&site, args.jobs).await;
            }
            measure::<sqlx::Sqlite>(&site, args.jobs).await
        };
        let measured = tokio::select! {
            measured = measuring => Some(measured),
            () = interrupted() => None,
        };
        let cleared = site.clear().await;
        let Some(measured) = measured else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        // What went wrong first is what to tell.
        let speeds = measured?.map(|per_second| right(format!("{per_second:.0}")));
        rows.add_row(std::iter::once(Cell::new(label)).chain(speeds));
        cleared?;
    }
    output::print(&text(&rows))?;
    output::note(
        "rough: one process, one run, no warm-up. no-op: settled in batches; atomic: update, insert and settle in one commit",
    );
    Ok(ExitCode::SUCCESS)
}

/// Jobs per second: enqueued, drained as no-ops, drained as atomic jobs.
async fn measure<DB: Tables>(site: &Site, jobs: u32) -> Result<[f64; 3]> {
    let rowlock = Rowlock::<DB>::open_in(&site.url, &site.schema)?;
    rowlock.migrate().await?;
    let prefix = site.prefix("bench");
    let mut conn = <DB::Connection as Connection>::connect(&site.url).await?;
    let create = format!(
        "create table {prefix}account (id bigint primary key, total bigint not null);
         create table {prefix}entry (account bigint not null);"
    );
    DB::script(&mut conn, create).await?;
    let mut tx = conn.begin().await?;
    for id in 0..ACCOUNTS {
        DB::change(
            &mut tx,
            format!("insert into {prefix}account (id, total) values ($1, 0)"),
            vec![id],
        )
        .await?;
    }
    tx.commit().await?;
    conn.close().await?;

    let start = Instant::now();
    rowlock
        .enqueue_all_now((0..i64::from(jobs)).map(|number| Noop { number }))
        .await?;
    let enqueued = start.elapsed();
    rowlock
        .enqueue_all_now((0..i64::from(jobs)).map(|number| Book { number }))
        .await?;

    let worker = || Worker::new(&rowlock).state(prefix.clone());
    let idle = drain(worker().queue("noop", 100).staged(noop::<DB>), jobs).await?;
    let atomic = drain(worker().queue("book", CONCURRENCY).atomic(book::<DB>), jobs).await?;
    Ok([enqueued, idle, atomic].map(|took| f64::from(jobs) / took.as_secs_f64()))
}

async fn drain<DB: Tables>(worker: Worker<String, DB>, jobs: u32) -> Result<Duration> {
    let counters = worker.counters();
    let start = Instant::now();
    let done = async {
        while counters.settled(Ended::Done) < u64::from(jobs) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut took = None;
    let all = async {
        took = tokio::time::timeout(DRAIN_MAX, done)
            .await
            .ok()
            .map(|()| start.elapsed())
    };
    worker.run_until(all).await?;
    took.with_context(|| {
        format!(
            "{} of {jobs} jobs done after {DRAIN_MAX:?}",
            counters.settled(Ended::Done)
        )
    })
}
