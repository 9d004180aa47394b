//! The jobs and their handlers. The harness owns `bench_account` and `bench_entry`.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::{ACCOUNTS, DONE, Fill};
use rowlock::{Backend, Ctx, Job, Outcome, Staged, Tx};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "noop", queue = "noop")]
pub(crate) struct Noop {
    pub(crate) number: i64,
    pub(crate) fill: String,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "book", queue = "book")]
pub(crate) struct Book {
    pub(crate) number: i64,
    pub(crate) fill: String,
}

/// The follow-up of a booking; no worker serves its queue.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "after", queue = "after")]
pub(crate) struct After {
    number: i64,
}

/// A job that is made of a number and letters.
pub(crate) trait Numbered: Job {
    fn make(number: i64, fill: &Fill) -> Self;
    fn number(&self) -> i64;
}

impl Numbered for Noop {
    fn make(number: i64, fill: &Fill) -> Noop {
        let fill = fill.of(number);
        Noop { number, fill }
    }

    fn number(&self) -> i64 {
        self.number
    }
}

impl Numbered for Book {
    fn make(number: i64, fill: &Fill) -> Book {
        let fill = fill.of(number);
        Book { number, fill }
    }

    fn number(&self) -> i64 {
        self.number
    }
}

/// What handlers share: how many ran, and when the last one that counts returned.
pub(crate) struct Tally {
    pub(crate) next: bool,
    began: Instant,
    jobs: u64,
    handled: AtomicU64,
    last: OnceLock<Duration>,
}

impl Tally {
    /// Counts from now, up to so many jobs.
    pub(crate) fn new(jobs: u64, next: bool) -> Arc<Tally> {
        Arc::new(Tally {
            next,
            began: Instant::now(),
            jobs,
            handled: AtomicU64::new(0),
            last: OnceLock::new(),
        })
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn count(&self) {
        DONE.fetch_add(1, Ordering::Relaxed);
        if self.handled.fetch_add(1, Ordering::Relaxed) + 1 == self.jobs {
            self.last.get_or_init(|| self.began.elapsed());
        }
    }

    /// From the start to the end of the last handler, once it has ended.
    pub(crate) fn handlers_seconds(&self) -> Option<f64> {
        self.last.get().map(Duration::as_secs_f64)
    }
}

/// The business statements, typed by the database.
pub(crate) trait Tables: Backend {
    const POSTGRES: bool;

    fn book(conn: &mut Self::Connection, number: i64) -> impl Future<Output = sqlx::Result<()>> + Send;
}

macro_rules! tables {
    ($($db:ty, $postgres:literal;)*) => {$(
        impl Tables for $db {
            const POSTGRES: bool = $postgres;

            async fn book(conn: &mut Self::Connection, number: i64) -> sqlx::Result<()> {
                let account = number % ACCOUNTS;
                sqlx::query("update bench_account set total = total + 1 where id = $1")
                    .bind(account)
                    .execute(&mut *conn)
                    .await?;
                sqlx::query("insert into bench_entry (job, account) values ($1, $2)")
                    .bind(number)
                    .bind(account)
                    .execute(&mut *conn)
                    .await?;
                Ok(())
            }
        }
    )*};
}

tables! {
    sqlx::Postgres, true;
    sqlx::Sqlite, false;
}

pub(crate) async fn noop<DB: Tables>(cx: Staged<Arc<Tally>, DB>, job: Noop) -> Outcome<DB> {
    std::hint::black_box(&job.fill);
    cx.state().count();
    cx.done().ok()
}

pub(crate) async fn book<DB: Tables>(cx: Ctx<Arc<Tally>, DB>, job: Book, mut tx: Tx<DB>) -> Outcome<DB> {
    std::hint::black_box(&job.fill);
    DB::book(&mut tx, job.number).await?;
    cx.state().count();
    let done = tx.done();
    match cx.state().next {
        true => done.then(After { number: job.number }).ok(),
        false => done.ok(),
    }
}
