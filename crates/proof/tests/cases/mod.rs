//! One file per verb; every case runs unchanged on every database. A case gets a [`Bed`]: a fresh database with the
//! schema in place, and the helpers that keep cases short.

mod settle;

use std::{future::Future, sync::Arc, time::Duration};

use proof::bed::{Database, Server};
use rowlock::{Counters, Job};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

use crate::db::{Conn, Ctx, Outcome, Rowlock, Tx, Worker};

/// One case's database and handle.
pub(crate) struct Bed {
    pub(crate) database: Database,
    pub(crate) rowlock: Rowlock,
}

impl Bed {
    pub(crate) async fn new(server: &Server, case: &str) -> Bed {
        let database = Database::fresh(server, case).await.unwrap();
        let rowlock = Rowlock::open(&database.url).unwrap();
        rowlock.migrate().await.unwrap();
        let bed = Bed { database, rowlock };
        bed.run("create table ledger (job bigint not null, note text not null)").await;
        bed
    }

    /// A connection of the user's own.
    pub(crate) async fn conn(&self) -> Conn {
        Conn::connect(&self.database.url).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.conn().await).await.unwrap();
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.conn().await).await.unwrap()
    }

    /// A worker on the queue `default` with a short lease.
    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&self.rowlock).queue("default", 8).lease(Duration::from_secs(2)).grace(Duration::from_secs(5))
    }
}

/// A worker running in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<rowlock::Result<()>>,
    pub(crate) counters: Arc<Counters>,
}

impl Running {
    pub(crate) fn start<A: Send + Sync + 'static>(worker: rowlock::Worker<A, crate::db::Backend>) -> Running {
        let (stop, counters) = (CancellationToken::new(), worker.counters());
        let stopped = stop.clone();
        let task = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
        Running { stop, task, counters }
    }

    pub(crate) async fn stop(self) -> Arc<Counters> {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        self.counters
    }
}

/// Waits for a state of the database or the counters, with a limit.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    proof::bed::until(what, Duration::from_secs(30), || {
        let check = check();
        async move { check.await.then_some(()) }
    })
    .await;
}

/// The plain job of most cases.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "note", attempts = 3)]
pub(crate) struct Note {
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn new(text: &str) -> Note {
        Note { text: text.into() }
    }
}

/// Writes one ledger row. The ledger has no unique index: a double effect shows.
pub(crate) async fn write(tx: &mut Tx, job: i64, note: &str) -> Result<(), sqlx::Error> {
    sqlx::query("insert into ledger (job, note) values ($1, $2)").bind(job).bind(note).execute(&mut **tx).await?;
    Ok(())
}

/// The plain handler of most cases.
pub(crate) async fn note(cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    tx.done().ok()
}

/// Makes a test of each case, run on every server of the run.
macro_rules! cases {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        $(
            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                for server in crate::db::servers() {
                    let case = concat!(module_path!(), "::", stringify!($name));
                    let case = case.split_once("::").map_or(case, |(_, rest)| rest);
                    super::$name(crate::cases::Bed::new(&server, case).await).await;
                }
            }
        )*
    };
}
pub(crate) use cases;
