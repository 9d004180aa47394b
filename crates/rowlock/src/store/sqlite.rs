//! The SQLite room.
//!
//! One connection writes, and every write transaction begins by taking the write lock (`begin immediate`), so what
//! row locks do in PostgreSQL needs no statement here; see `writer`. A few connections read beside it, in WAL mode.
//! Several processes may share the file: its lock decides between them.
//!
//! The database's clock is this machine's: SQLite runs in the process, and a file in WAL mode is never shared between
//! machines. So the time is a parameter of every statement, read once the write lock is held.

mod batch;
mod body_lock;
mod breaker;
mod cases;
mod claim;
mod conns;
mod enqueue;
mod group;
mod guard;
mod journal;
mod keys;
mod ledger;
mod migrate;
mod recover;
mod refused;
mod resolve;
mod room;
mod rows;
mod setting;
mod settle;
mod sql;
mod sweep;
mod triggers;
mod verbs;
mod verify;
mod views;
mod vitals;
mod waits;
mod wake;
mod writer;

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
    conns::{Opening, Readers},
    wake::Hints,
    writer::{Verb, Writer},
};
use crate::{
    case::CaseView,
    error::{Doing, Error, Result},
    job::Draft,
    key::Enqueued,
    lease::{Token, WorkerId},
    observe::{AttemptView, JobFilter, JobView, Status},
    retention::Retention,
    store::{
        ClaimAsk, ClaimReply, Clock, Expired, Fut, Judged, Resolved, Settlement, Store, Stretch, Swept, Timing, Wakes,
        schema::{Migration, SchemaFound},
    },
};

/// How long a migration may wait for its turn.
const MIGRATE_LIMIT: Duration = Duration::from_secs(600);

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

/// The time that statements go by, in microseconds since the epoch.
fn now_us(clock: &Clock) -> i64 {
    clock.now().unwrap_or_else(Timestamp::now).as_microsecond()
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl SqliteStore {
    /// Opens nothing yet.
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

    /// The same with another lease. The writer stays the same one: a second one in the process would only fight it
    /// for the lock.
    pub fn with(&self, timing: Timing) -> SqliteStore {
        self.inner.opening.wait_at_most(timing.lock);
        SqliteStore {
            inner: self.inner.clone(),
            timing,
        }
    }

    /// How long a verb may wait for its turn.
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

    fn hints(&self) -> &Arc<Hints> {
        self.inner
            .hints
            .get_or_init(|| wake::hints(self.inner.opening.canonical()))
    }
}

impl Store for SqliteStore {
    fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// The same store: its writer lives on a thread of its own and its connections belong to no runtime.
    fn twin(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    fn schema(&self) -> Fut<'_, SchemaFound> {
        Box::pin(self.read("schema check", async |db, _| migrate::found(db).await))
    }

    fn migrate<'a>(&'a self, more: &'a [Migration]) -> Fut<'a, Vec<String>> {
        let scripts = migrate::scripts().and(more);
        Box::pin(async move {
            let writer = &self.inner.writer;
            let write = writer.write("migrate", MIGRATE_LIMIT, scripts, |db, _, scripts| {
                Box::pin(migrate::apply(db, scripts))
            });
            write.await?
        })
    }

    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            if drafts.is_empty() {
                return Ok(Vec::new());
            }
            let write = self.write("enqueue", drafts.to_vec(), |db, now, drafts| {
                Box::pin(async move {
                    let put = enqueue::enqueue_all(db, now, drafts).await?;
                    let woken = put.as_ref().map(|put| enqueue::new_due_queues(drafts, put, now));
                    Ok((woken.unwrap_or_default(), put))
                })
            });
            let (woken, put) = write.await.map_err(Error::answered)?;
            self.wake(&woken);
            Ok(put?)
        })
    }

    fn register<'a>(&'a self, worker: WorkerId, name: &'a str, lease: Duration) -> Fut<'a, ()> {
        let input = (worker, name.to_owned(), lease);
        Box::pin(self.write("register", input, |db, now, (worker, name, lease)| {
            Box::pin(recover::register(db, now, *worker, name, *lease))
        }))
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply> {
        Box::pin(self.write("claim", ask.clone(), |db, now, ask| {
            Box::pin(claim::claim(db, now, ask))
        }))
    }

    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>> {
        Box::pin(async {
            let write = self.write("settle", batch.to_vec(), |db, now, batch| {
                Box::pin(settle::settle_all(db, now, batch))
            });
            let (held, woken) = write.await??;
            self.wake(&woken);
            Ok(batch.iter().map(|s| held.contains(&s.token)).collect())
        })
    }

    fn resolve(&self, token: Token) -> Fut<'_, Resolved> {
        Box::pin(self.write("resolve", token, |db, _, token| Box::pin(resolve::resolve(db, *token))))
    }

    fn beat(&self, worker: WorkerId) -> Fut<'_, bool> {
        let limit = self.timing.lock;
        Box::pin(self.inner.writer.write("heartbeat", limit, worker, |db, now, worker| {
            Box::pin(recover::beat(db, now, *worker))
        }))
    }

    fn mark_dead(&self) -> Fut<'_, Judged> {
        Box::pin(self.write("mark dead workers", (), |db, now, ()| {
            Box::pin(recover::mark_dead(db, now))
        }))
    }

    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>> {
        Box::pin(async move {
            let write = self.write("expire", max, |db, now, max| Box::pin(recover::expire(db, now, *max)));
            let (expired, woken) = write.await?;
            self.wake(&woken);
            Ok(expired)
        })
    }

    fn forget_dead(&self) -> Fut<'_, i64> {
        Box::pin(self.write("remove dead workers", (), |db, _, ()| {
            Box::pin(recover::forget_dead(db))
        }))
    }

    fn leave(&self, worker: WorkerId) -> Fut<'_, ()> {
        Box::pin(self.write("unregister", worker, |db, _, worker| {
            Box::pin(recover::leave(db, *worker))
        }))
    }

    fn own_leases(&self, worker: WorkerId, _in_flight: bool) -> Fut<'_, Vec<Token>> {
        Box::pin(self.write("list own leases", worker, |db, _, worker| {
            Box::pin(recover::own_leases(db, *worker))
        }))
    }

    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool> {
        Box::pin(self.read("claim", async move |db, now| {
            views::alone_due(db, now.saturating_sub(micros(longer_than)), stretches).await
        }))
    }

    /// Nothing to cut from outside: a connection belongs to whoever holds it, and closes when it is dropped.
    fn cut(&self, holder: i64) -> Fut<'_, bool> {
        Box::pin(async move { Ok(writer::committed_by_user(holder)) })
    }

    fn wake(&self, queues: &[i64]) {
        for queue_no in queues {
            // Nobody listening is no error.
            let _ = self.hints().send(*queue_no);
        }
    }

    fn wakes(&self) -> Fut<'_, Box<dyn Wakes>> {
        Box::pin(async {
            let conn = self.inner.opening.quiet_reader().await.doing("listen")?;
            let listening = wake::Listening::start(self.hints().clone(), conn)
                .await
                .doing("listen")?;
            Ok(Box::new(listening) as Box<dyn Wakes>)
        })
    }

    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept> {
        Box::pin(sweep::maintain(self, retention))
    }

    fn status(&self) -> Fut<'_, Status> {
        Box::pin(self.read("status", async |db, now| views::status(db, now).await))
    }

    fn jobs<'a>(&'a self, filter: &'a JobFilter) -> Fut<'a, Vec<JobView>> {
        Box::pin(self.read("list jobs", async |db, _| views::jobs(db, filter).await))
    }

    fn job(&self, id: i64) -> Fut<'_, Option<JobView>> {
        Box::pin(self.read("read job", async move |db, _| views::job(db, id).await))
    }

    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>> {
        Box::pin(self.read("read attempts", async move |db, _| views::attempts(db, id).await))
    }

    fn cases(&self, error: Option<i64>, max: i64) -> Fut<'_, Vec<CaseView>> {
        Box::pin(self.read("list cases", async move |db, _| {
            views::cases(db, None, error, max).await
        }))
    }

    fn case(&self, id: i64) -> Fut<'_, Option<CaseView>> {
        Box::pin(self.read("read case", async move |db, _| {
            Ok(views::cases(db, Some(id), None, 1).await?.pop())
        }))
    }

    fn chain(&self, id: i64) -> Fut<'_, Vec<JobView>> {
        Box::pin(self.read("read chain", async move |db, _| views::chain(db, id).await))
    }

    fn reopen<'a>(&'a self, id: i64, actor: &'a str) -> Fut<'a, bool> {
        Box::pin(async move {
            let write = self.write("reopen", (id, actor.to_owned()), |db, now, (id, actor)| {
                Box::pin(verbs::reopen(db, now, *id, actor))
            });
            let queue = write.await?;
            self.wake(queue.as_slice());
            Ok(queue.is_some())
        })
    }
}
