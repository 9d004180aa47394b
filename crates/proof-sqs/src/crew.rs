//! A worker on either database, whose handler does what the case says and then writes one row into the ledger.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use rowlock::{Backoff, Fail, Job, staged};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

/// The queue of every job here.
pub const QUEUE: &str = "jobs";

/// The job of every case.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "note", queue = "jobs", attempts = 3)]
pub struct Note {
    /// What the ledger gets to say.
    pub text: String,
}

/// How an attempt is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// One row in the ledger.
    Done,
    /// Fails, and is tried again.
    Retry,
    /// Becomes a case.
    Retire,
}

/// What a handler does before its transaction: by the job's text and the attempt's number.
pub type Behaviour = Arc<dyn Fn(String, i32) -> Pin<Box<dyn Future<Output = Act> + Send>> + Send + Sync>;

/// Always done, immediately.
pub fn at_once() -> Behaviour {
    Arc::new(|_, _| Box::pin(async { Act::Done }))
}

/// Ends as the function says, immediately.
pub fn by(act: impl Fn(&str, i32) -> Act + Send + Sync + 'static) -> Behaviour {
    Arc::new(move |text, attempt| {
        let act = act(&text, attempt);
        Box::pin(async move { act })
    })
}

/// Done after this long.
pub fn after(time: Duration) -> Behaviour {
    Arc::new(move |_, _| {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Act::Done
        })
    })
}

/// A handle on one of the two.
#[derive(Clone)]
pub enum Handle {
    /// SQLite.
    Sqlite(rowlock::sqlite::Rowlock),
    /// PostgreSQL.
    Postgres(rowlock::postgres::Rowlock),
}

/// A worker at work.
pub struct Crew {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<rowlock::Result<()>>,
}

impl Crew {
    /// Stops it, in order.
    ///
    /// # Errors
    /// It had not ended well.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

macro_rules! room {
    ($room:ident, $conn:ty) => {
        mod $room {
            use rowlock::$room::{Outcome, Rowlock, Staged, Worker};

            use super::*;

            pub(super) fn worker(rowlock: &Rowlock, places: usize, act: Behaviour) -> Worker {
                let handler = move |cx: Staged, job: Note| {
                    let act = act.clone();
                    async move { handle(cx, job, act).await }
                };
                let backoff = Backoff::new()
                    .base(Duration::from_millis(50))
                    .max(Duration::from_millis(100));
                Worker::new(rowlock)
                    .queue(QUEUE, places)
                    .grace(Duration::from_secs(5))
                    .handle(staged(handler).backoff(backoff))
            }

            async fn handle(cx: Staged, job: Note, act: Behaviour) -> Outcome {
                match act(job.text.clone(), cx.attempt()).await {
                    Act::Retry => return Err(Fail::retry("not today")),
                    Act::Retire => return Err(Fail::retire("never")),
                    Act::Done => {}
                }
                let id = cx.id();
                let mut tx = cx.begin().await?;
                let insert = sqlx::query("insert into ledger (job, note) values ($1, $2)");
                insert.bind(id).bind(&job.text).execute(&mut *tx).await?;
                tx.done().ok()
            }

            pub(super) async fn run(url: &str, sql: &str) -> Result<Vec<String>> {
                let mut conn = <$conn>::connect(url).await?;
                let rows = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
                Ok(rows.fetch_all(&mut conn).await?)
            }
        }
    };
}

room!(sqlite, sqlx::SqliteConnection);
room!(postgres, sqlx::PgConnection);

impl Handle {
    /// By the database's URL.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn open(url: &str) -> Result<Handle> {
        Ok(match url.starts_with("sqlite:") {
            true => Handle::Sqlite(rowlock::Rowlock::open(url)?),
            false => Handle::Postgres(rowlock::Rowlock::open(url)?),
        })
    }

    /// Starts a worker with so many places.
    pub fn work(&self, places: usize, act: Behaviour) -> Crew {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let told = async move { stopped.cancelled().await };
        let task = match self {
            Handle::Sqlite(rowlock) => tokio::spawn(sqlite::worker(rowlock, places, act).run_until(told)),
            Handle::Postgres(rowlock) => tokio::spawn(postgres::worker(rowlock, places, act).run_until(told)),
        };
        Crew { stop, task }
    }

    /// Makes the tables.
    ///
    /// # Errors
    /// The database refused it.
    pub async fn prepare(&self, url: &str) -> Result<()> {
        match self {
            Handle::Sqlite(rowlock) => rowlock.migrate().await?,
            Handle::Postgres(rowlock) => rowlock.migrate().await?,
        };
        let table = "create table ledger (job bigint not null, note text not null)";
        self.texts(url, table).await.context("the ledger").map(drop)
    }

    /// The one text column that a query gives.
    ///
    /// # Errors
    /// The database refused it.
    pub async fn texts(&self, url: &str, sql: &str) -> Result<Vec<String>> {
        match self {
            Handle::Sqlite(_) => sqlite::run(url, sql).await,
            Handle::Postgres(_) => postgres::run(url, sql).await,
        }
    }
}
