//! The SQLite backend.
//!
//! One connection writes, and every write transaction begins by taking the write lock (`begin immediate`). So the row
//! locks of PostgreSQL need no statement here; see `writer`. A few other connections read, in WAL mode. Several
//! processes may share the file: the file's lock decides between them.
//!
//! The database's clock is this machine's clock: SQLite runs in the process, and a file in WAL mode is never shared
//! between machines. So the time is a parameter of every statement, read once the write lock is held.

mod batch;
mod claim;
mod connect;
mod engine;
mod enqueue;
mod group;
mod in_tx;
mod inspect;
mod keys;
mod migrate;
mod operate;
mod recover;
mod resolve;
mod rows;
mod settle;
mod sql;
mod sweep;
mod tools;
mod views;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use sqlx::{SqliteConnection, sqlite::SqliteConnectOptions};

pub use self::migrate::{SCHEMA, migration_sql};
use self::{
    connect::{
        conns::{self, Opening, Readers},
        refused,
        wake::{self, Hints},
        writer::{self, Verb, Writer},
    },
    tools::{body_lock, breaker, guard, journal, ledger, triggers, waits},
    views::{cases, verify, vitals},
};
use crate::{
    error::{Doing, Error, Result},
    store::{Clock, Timing},
};

/// A store on one SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
    timing: Timing,
}

struct Inner {
    opening: Opening,
    clock: Clock,
    writer: Writer,
    readers: Arc<Readers>,
    hints: OnceLock<Arc<Hints>>,
}

/// The time that statements use, in microseconds since the epoch.
fn now_us(clock: &Clock) -> i64 {
    clock.now().unwrap_or_else(Timestamp::now).as_microsecond()
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl SqliteStore {
    /// Opens no connection yet.
    pub fn new(options: SqliteConnectOptions, timing: Timing, clock: Clock) -> SqliteStore {
        let opening = Opening::new(options, timing);
        let inner = Inner {
            writer: Writer::new(opening.clone(), clock.clone()),
            readers: Readers::new(opening.clone()),
            hints: OnceLock::new(),
            opening,
            clock,
        };
        SqliteStore {
            inner: Arc::new(inner),
            timing,
        }
    }

    /// This store with another lease. Both use the same writer: a second writer in the process would only compete for
    /// the lock.
    pub fn with(&self, timing: Timing) -> SqliteStore {
        self.inner.opening.wait_at_most(timing.lock);
        SqliteStore {
            inner: self.inner.clone(),
            timing,
        }
    }

    /// How long a method may wait for its turn.
    fn limit(&self) -> Duration {
        self.timing.lease.max(Duration::from_secs(10))
    }

    async fn write<I, T>(&self, doing: &'static str, input: I, verb: Verb<I, T>) -> Result<T>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.inner.writer.write(doing, self.limit(), input, verb).await
    }

    async fn read<T>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection, i64) -> sqlx::Result<T>,
    ) -> Result<T> {
        let mut reading = self.inner.readers.acquire().await.doing(doing)?;
        let seen = work(reading.sql(), now_us(&self.inner.clock)).await.doing(doing)?;
        reading.give_back();
        Ok(seen)
    }

    /// The answer of a method in the caller's transaction. The error for a locked file names the file, and the caller
    /// may simply try again.
    fn answered<T>(&self, answer: sqlx::Result<T>, doing: &'static str) -> Result<T> {
        answer
            .map_err(|e| refused::explained(e, &self.inner.opening.name()))
            .doing(doing)
            .map_err(Error::answered)
    }

    fn hints(&self) -> &Arc<Hints> {
        self.inner
            .hints
            .get_or_init(|| wake::hints(self.inner.opening.canonical()))
    }
}
