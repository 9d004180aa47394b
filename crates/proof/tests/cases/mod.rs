//! A folder per noun; every case runs unchanged on every database. A case gets a [`Bed`]: a fresh database with the
//! schema in place, and what keeps cases short.

mod breaker;
mod claim;
mod effect;
mod enqueue;
mod group;
pub(crate) mod guard;
pub(crate) mod handle;
mod key;
mod ledger;
mod migrate;
pub(crate) mod observe;
mod operate;
mod retention;
mod settle;
mod verify;
mod wait;
mod worker;

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use proof::bed::{Database, Server};
use rowlock::{
    Backoff, Counters, Ended, Fail, Job, State,
    observe::{AttemptView, JobView},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection};
use tokio_util::sync::CancellationToken;

use self::db::{Backend, Conn, Ctx, Outcome, Rowlock, Tx, Worker};
pub(crate) use super::db;

/// The shortest lease there is: cases that wait for its end stay short.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// One case's database and handle.
pub(crate) struct Bed {
    pub(crate) database: Database,
    pub(crate) rowlock: Rowlock,
}

impl Bed {
    pub(crate) async fn new(server: &Server, case: &str) -> Bed {
        let bed = Bed::on(Database::fresh(server, case).await.unwrap());
        bed.run("create table ledger (job bigint not null, note text not null)")
            .await;
        bed
    }

    /// A database without any table.
    pub(crate) async fn bare(server: &Server, case: &str) -> Bed {
        Bed::on(Database::bare(server, case).await.unwrap())
    }

    fn on(database: Database) -> Bed {
        proof::bed::show_log();
        let rowlock = Rowlock::open(&database.queue_url).unwrap();
        Bed { database, rowlock }
    }

    /// A connection of the user's own.
    pub(crate) async fn conn(&self) -> Conn {
        // The driver makes no file unless asked to; a bare bed has none yet.
        let create = if self.database.is_sqlite() { "?mode=rwc" } else { "" };
        Conn::connect(&format!("{}{create}", self.database.url)).await.unwrap()
    }

    /// Runs SQL by hand; write the engine's tables as `rowlock.job`.
    pub(crate) async fn run(&self, text: &str) {
        sqlx::raw_sql(sql(text)).execute(&mut self.conn().await).await.unwrap();
    }

    /// Runs SQL that names its tables itself.
    pub(crate) async fn run_as_it_is(&self, text: &str) {
        sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
            .execute(&mut self.conn().await)
            .await
            .unwrap();
    }

    pub(crate) async fn count(&self, text: &str) -> i64 {
        sqlx::query_scalar(sql(text))
            .fetch_one(&mut self.conn().await)
            .await
            .unwrap()
    }

    pub(crate) async fn ledger(&self) -> i64 {
        self.count("select count(*) from ledger").await
    }

    pub(crate) async fn note(&self, text: &str) -> i64 {
        self.rowlock.enqueue_now(Note::new(text)).await.unwrap().id()
    }

    pub(crate) async fn job(&self, id: i64) -> JobView {
        self.rowlock.observe().job(id).await.unwrap().unwrap()
    }

    pub(crate) async fn attempts(&self, id: i64) -> Vec<AttemptView> {
        self.rowlock.observe().attempts(id).await.unwrap()
    }

    /// How the job's attempts ended, oldest first.
    pub(crate) async fn ends(&self, id: i64) -> Vec<Ended> {
        self.attempts(id).await.iter().map(|a| a.outcome).collect()
    }

    /// A worker on the queue `default`.
    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&self.rowlock)
            .queue("default", 8)
            .grace(Duration::from_secs(5))
    }

    /// The same with the shortest lease, for cases that wait for its end or for what happens a few times in it. Others
    /// have no use for it: on a busy machine it cuts them short.
    pub(crate) fn hasty_worker(&self) -> Worker {
        self.worker().lease(LEASE)
    }

    /// A worker that takes one job at a time, so that the order of claims is the order of runs.
    pub(crate) fn single(&self) -> Worker {
        Worker::new(&self.rowlock).queue("default", 1).prefetch(0)
    }

    /// Runs the worker until each of these jobs is finished or a case.
    pub(crate) async fn work<A>(&self, worker: rowlock::Worker<A, Backend>, ids: &[i64]) -> Arc<Counters>
    where
        A: Send + Sync + 'static,
    {
        let running = Running::start(worker);
        for id in ids {
            until("every job to stand still", async || {
                matches!(self.job(*id).await.state, State::Finished | State::Case)
            })
            .await;
        }
        running.stop().await
    }

    /// Runs the worker until this job has ended so many attempts.
    pub(crate) async fn work_attempts(&self, worker: Worker, id: i64, attempts: usize) -> Arc<Counters> {
        let running = Running::start(worker);
        until("the attempts to end", async || {
            self.attempts(id).await.len() >= attempts
        })
        .await;
        running.stop().await
    }

    pub(crate) async fn remove(self) {
        self.database.remove().await.unwrap();
    }
}

/// The statement with the engine's tables named as they are here.
pub(crate) fn sql(text: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(text.replace("rowlock.", db::TABLES))
}

/// A worker running in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<rowlock::Result<()>>,
    pub(crate) counters: Arc<Counters>,
}

impl Running {
    pub(crate) fn start<A: Send + Sync + 'static>(worker: rowlock::Worker<A, Backend>) -> Running {
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

/// A worker that is gone without a word once `in_hand` resolves, as a killed process is: its runtime is dropped with
/// every task on it unpolled, so nothing is settled or released, and no heartbeat is sent any more.
pub(crate) async fn vanish(worker: Worker, in_hand: impl Future<Output = ()> + Send + 'static) {
    let gone = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                ended = worker.run_until(std::future::pending()) => ended.unwrap(),
                () = in_hand => {}
            }
        });
    });
    gone.await.unwrap();
}

/// Waits for a state of the database or the counters, with a limit.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    proof::bed::until(what, Duration::from_secs(60), || {
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

/// A job of another kind.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "other")]
pub(crate) struct Other {
    pub(crate) n: i64,
}

/// Writes one ledger row. The ledger has no unique index: a double effect shows.
pub(crate) async fn write(tx: &mut Tx, job: i64, note: &str) -> Result<(), sqlx::Error> {
    sqlx::query("insert into ledger (job, note) values ($1, $2)")
        .bind(job)
        .bind(note)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The plain handler of most cases.
pub(crate) async fn note(cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id(), &job.text).await?;
    tx.done().ok()
}

/// Ends a handler that can only fail.
pub(crate) fn fail(fail: impl Into<Fail>) -> Outcome {
    Err(fail.into())
}

/// What handlers saw, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn push(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Next to no wait between attempts.
pub(crate) const AT_ONCE: Backoff = Backoff::new()
    .base(Duration::from_millis(1))
    .max(Duration::from_millis(2));

/// Makes a test of each case, run on every server of the run; `bare` cases get a database without any table. For a
/// module `tests` whose grandparent has the macro, `db` and [`Bed`].
macro_rules! cases {
    (bare: $($name:ident),* $(,)?) => { $(super::super::cases!(@one bare $name);)* };
    ($($name:ident),* $(,)?) => { $(super::super::cases!(@one new $name);)* };
    (@one $make:ident $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() {
            for server in super::super::db::servers() {
                let case = concat!(module_path!(), "::", stringify!($name));
                let case = case.splitn(3, "::").last().unwrap_or(case);
                let bed = super::super::Bed::$make(&server, case).await;
                super::$name(&bed).await;
                bed.remove().await;
            }
        }
    };
}
pub(crate) use cases;
