//! A test rig for your handlers: a real database, a clock you move, one job at a time, no sleeping.
//!
//! ```
//! use rowlock::{Job, atomic, sqlite::{Ctx, Outcome, TestRig, Tx}};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! struct Greet { name: String }
//!
//! async fn greet(_cx: Ctx, job: Greet, mut tx: Tx) -> Outcome {
//!     sqlx::query("insert into greeting (name) values ($1)").bind(job.name).execute(&mut *tx).await?;
//!     tx.done().ok()
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let rig = TestRig::sqlite().await?.handle(atomic(greet));
//! sqlx::raw_sql("create table greeting (name text)").execute(&mut rig.connect().await?).await?;
//! rig.enqueue(Greet { name: "Ada".into() }).await?;
//! rig.run_once().await?.expect_done();
//! # rig.close().await?; Ok(()) })
//! # }
//! ```

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use sqlx::Connection;
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::{
        Bond, Env, Finished, Nobody,
        hand::{InHand, Names, Session},
    },
    claim::{Planner, Reach},
    enqueue::JobOptions,
    error::{Error, Result},
    handle::{Attempt, Fail, Handler, atomic::Handler as Bound},
    id::JobId,
    job::{Job, kind_no, queue_no},
    key::Enqueued,
    lease::{Claimed, WorkerId},
    observe::JobView,
    retention::Retention,
    root::{Backend, Rowlock},
    settle::Ending,
    state::Ended,
    store::{ClaimReply, Clock, Settlement, Store, Sweep, Timing},
    worker::leased::{run, run_for_nothing},
};

/// The rig's lease, by its own clock.
const LEASE: Duration = Duration::from_secs(15);

/// A real database with a clock you move. Jobs run when you call for them, one at a time.
pub struct TestRig<A, DB: Backend> {
    rowlock: Rowlock<DB>,
    url: String,
    file: Option<std::path::PathBuf>,
    state: Arc<A>,
    handlers: Vec<Bound<DB>>,
    queues: std::sync::Mutex<Vec<String>>,
    clock: Clock,
    start: Timestamp,
}

crate::debug::debug_fields!([A, DB: Backend] TestRig<A, DB>, "TestRig", start);

#[cfg(feature = "sqlite")]
impl TestRig<(), sqlx::Sqlite> {
    /// A rig on a new SQLite file in the temporary folder, removed by [`TestRig::close`].
    ///
    /// # Errors
    /// The file could not be made.
    pub async fn sqlite() -> Result<TestRig<(), sqlx::Sqlite>> {
        let file = std::env::temp_dir().join(format!("rowlock-rig-{}.db", uuid::Uuid::now_v7()));
        let mut rig = TestRig::open(&format!("sqlite:{}?mode=rwc", file.display()), "rowlock").await?;
        rig.file = Some(file);
        Ok(rig)
    }
}

#[cfg(feature = "postgres")]
impl TestRig<(), sqlx::Postgres> {
    /// A rig in this PostgreSQL database, named by one host, in a separate schema which stays until the database is
    /// dropped.
    ///
    /// # Errors
    /// The database could not be reached or the schema could not be created.
    pub async fn postgres(url: &str) -> Result<TestRig<(), sqlx::Postgres>> {
        TestRig::open(url, &format!("rig_{}", uuid::Uuid::now_v7().simple())).await
    }
}

impl<DB: Backend> TestRig<(), DB> {
    async fn open(url: &str, schema: &str) -> Result<TestRig<(), DB>> {
        let clock = Clock::default();
        let rowlock = Rowlock::with_clock(url, schema, clock.clone())?;
        rowlock.migrate().await?;
        let start = Timestamp::now();
        clock.set(start);
        Ok(TestRig {
            rowlock,
            url: url.to_owned(),
            file: None,
            state: Arc::new(()),
            handlers: Vec::new(),
            queues: std::sync::Mutex::default(),
            clock,
            start,
        })
    }

    /// What handlers can reach through their context. Set it before the handlers.
    pub fn state<A: Send + Sync + 'static>(self, state: A) -> TestRig<A, DB> {
        TestRig {
            state: Arc::new(state),
            rowlock: self.rowlock,
            url: self.url,
            file: self.file,
            handlers: self.handlers,
            queues: self.queues,
            clock: self.clock,
            start: self.start,
        }
    }
}

impl<A: Send + Sync + 'static, DB: Backend> TestRig<A, DB> {
    /// Adds a handler: `rig.handle(atomic(greet))`. Its breakers and its batch have no effect here.
    pub fn handle<T>(mut self, handler: Handler<A, DB, T>) -> Self {
        let (handler, _) = handler.bind(self.state.clone());
        self.handlers.push(handler);
        self
    }

    /// Also serves this queue; the queues of handlers' kinds are served anyway.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.queues
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(queue.into());
        self
    }

    /// The handle, for enqueuing in your own transactions and for reading.
    pub fn rowlock(&self) -> &Rowlock<DB> {
        &self.rowlock
    }

    /// A connection to the rig's database, for your own tables.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn connect(&self) -> Result<DB::Connection> {
        DB::Connection::connect(&self.url)
            .await
            .map_err(|source| Error::Database {
                doing: "connect",
                source,
            })
    }

    /// The rig's time.
    pub fn now(&self) -> Timestamp {
        self.clock.now().unwrap_or(self.start)
    }

    /// Moves the clock forward. Due times and leases use this clock.
    pub fn advance(&self, by: Duration) {
        let later = self.now().checked_add(by).unwrap_or(Timestamp::MAX);
        self.clock.set(later);
    }

    /// Enqueues a job in a separate commit.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue_now`].
    pub async fn enqueue<J: Job>(&self, job: J) -> Result<JobId> {
        self.enqueue_with(job, JobOptions::new()).await
    }

    /// [`TestRig::enqueue`] with options.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue_now`].
    pub async fn enqueue_with<J: Job>(&self, job: J, options: JobOptions) -> Result<JobId> {
        let draft = options.draft(&job, self.rowlock.limits())?;
        let put = self.rowlock.store().enqueue(std::slice::from_ref(&draft)).await?;
        put.first()
            .map(Enqueued::id)
            .ok_or_else(|| Error::NotFound("the new job was not returned by the database; report this as a bug".into()))
    }

    /// Claims the next due job, runs it and settles it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is due at the rig's time.
    pub async fn run_once(&self) -> Result<Ran> {
        let (claimed, handler, job) = self.claim_next().await?;
        let attempt = Attempt::of(&claimed, CancellationToken::new());
        let finished = run(&self.env(), handler, &claimed, attempt, &job, &mut Nobody).await;
        let (ended, error) = match finished {
            Finished::Settled { ended, error, .. } => (Some(ended), error),
            Finished::Settle { settlement, .. } => self.settle(settlement, &job).await?,
            Finished::LeaseLost | Finished::Cut => (None, None),
        };
        let hooks = job.take_hooks();
        for hook in hooks.into_iter().filter(|_| ended == Some(Ended::Done)) {
            if let Err(error) = hook.run().await {
                tracing::warn!(
                    job = claimed.token.id,
                    "after-commit hook failed, the job stays done: {error}"
                );
            }
        }
        self.rowlock.store().leave(claimed.token.worker).await?;
        let observe = self.rowlock.observe();
        let job = observe.job(claimed.token.id).await?;
        let chain = observe.chain(claimed.token.id).await?;
        let position = claimed.body.as_ref().map_or(0, |b| b.position);
        Ok(Ran {
            id: claimed.token.id.into(),
            ended,
            error,
            job,
            next: chain.into_iter().filter(|j| j.position == position + 1).collect(),
        })
    }

    /// Claims the next due job and loses its worker before anything ran, as a kill right after the claim does. The
    /// clock moves past the lease. Returns the job's id.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is due.
    pub async fn lose_before_running(&self) -> Result<JobId> {
        let (claimed, _, _) = self.claim_next().await?;
        self.lose(&claimed).await
    }

    /// Runs the next due job's handler to its end and loses the worker right before the commit. The handler's external
    /// calls have happened and its effects' replies are stored; nothing else of it is in the database. The clock moves
    /// past the lease. Run the job again to check that a repeat is safe.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nothing is due; [`Error::Config`] with the handler's error when it failed before its
    /// end.
    pub async fn lose_before_commit(&self) -> Result<JobId> {
        let (claimed, handler, job) = self.claim_next().await?;
        let attempt = Attempt::of(&claimed, CancellationToken::new());
        let ran = run_for_nothing(&self.env(), handler, &claimed, attempt, &job).await;
        let id = self.lose(&claimed).await?;
        ran.map_err(|fail| Error::Config(format!("the handler failed before its commit: {}", fail.text)))?;
        Ok(id)
    }

    /// One round of upkeep at the rig's time, which removes what is past this retention. Returns how many cases were
    /// removed.
    ///
    /// # Errors
    /// The database could not be reached.
    pub async fn upkeep(&self, retention: &Retention) -> Result<u64> {
        Ok(self.rowlock.store().maintain(retention).await?.cases)
    }

    /// Removes the rig's file. A schema in PostgreSQL stays until its database is dropped, so that you can inspect it.
    ///
    /// # Errors
    /// The file could not be removed.
    pub async fn close(self) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        drop(self);
        for suffix in ["", "-wal", "-shm"] {
            let mut path = file.clone().into_os_string();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::Config(format!("could not remove {}: {e}", path.display())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes an attempt's end as the engine does; an end whose next link is refused becomes a case.
    async fn settle(&self, mut end: Settlement, job: &InHand) -> Result<(Option<Ended>, Option<String>)> {
        let store = self.rowlock.store();
        let applied = match store.settle(std::slice::from_ref(&end)).await {
            Err(error @ Error::KeyConflict { .. }) => {
                end = job.ending.failed(Fail::from(error));
                store.settle(std::slice::from_ref(&end)).await?
            }
            applied => applied?,
        };
        Ok((applied.contains(&true).then_some(end.ended), end.error))
    }

    fn env(&self) -> Env<DB> {
        Env {
            rowlock: self.rowlock.clone(),
            timing: Timing::of_lease(LEASE),
            resolved: Box::new(|_, _| {}),
            emit: Arc::new(|_| {}),
        }
    }

    async fn claim_next(&self) -> Result<(Claimed, &Bound<DB>, Arc<InHand>)> {
        let store = self.rowlock.store();
        // A worker's watch also does this: waits end by the rig's clock too.
        if store.sweep(Sweep::Waits { names: true }, 1000).await?.groups {
            store.sweep(Sweep::Groups, 1000).await?;
        }
        let worker = WorkerId::random();
        store.register(worker, "rig", LEASE, &[]).await?;
        let mut queues = self
            .queues
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        queues.extend(self.handlers.iter().map(|h| h.queue.to_owned()));
        queues.sort();
        queues.dedup();
        let kinds: Vec<(&str, i32)> = self.handlers.iter().map(|h| (&*h.kind, h.version)).collect();
        for alone in [false, true] {
            for queue in &queues {
                let mut planner = Planner::new(std::iter::once(queue.as_str()), &kinds);
                let mut ask = planner.ask(worker, &[(queue_no(queue), 1)], Reach::Full);
                ask.alone = alone;
                let ClaimReply::Jobs(jobs) = store.claim(&ask).await? else {
                    continue;
                };
                let Some(claimed) = jobs.into_iter().next() else {
                    continue;
                };
                let handles = |h: &&Bound<DB>| (1..=h.version).any(|v| kind_no(&h.kind, v) == claimed.kind_no);
                if let Some(handler) = self.handlers.iter().find(handles) {
                    let ending = Ending::of(&claimed, handler.backoff);
                    let names = Names {
                        queue: queue.as_str().into(),
                        queue_no: queue_no(queue),
                        worker: "rig".into(),
                        kind: claimed.body.as_ref().map_or("", |b| &b.kind).to_owned(),
                    };
                    let (limit, session) = (handler.time_limit, Session::new(worker, None));
                    let job = InHand::of_job(&claimed, ending, limit, names, session, Bond::default());
                    return Ok((claimed, handler, job));
                }
            }
        }
        store.leave(worker).await?;
        Err(Error::NotFound(format!(
            "no job is due at {} in {queues:?}; advance the clock or enqueue one",
            self.now()
        )))
    }

    /// Past the lease, every worker agrees that this worker is gone.
    async fn lose(&self, claimed: &Claimed) -> Result<JobId> {
        let store = self.rowlock.store();
        self.advance(LEASE + Duration::from_secs(1));
        store.mark_dead().await?;
        // SQLite must see the worker silent twice.
        self.advance(LEASE / 3 + Duration::from_secs(1));
        store.mark_dead().await?;
        store.expire(1000).await?;
        store.forget_dead().await?;
        Ok(claimed.token.id.into())
    }
}

/// What one run did. The `expect_` methods panic with what happened instead: they are a test's assertions.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ran {
    /// The job that ran.
    pub id: JobId,
    /// How the attempt ended; `None` when its lease was lost.
    pub ended: Option<Ended>,
    /// What went wrong, if anything.
    pub error: Option<String>,
    /// The job as it is now.
    pub job: Option<JobView>,
    /// The next links of its chain.
    pub next: Vec<JobView>,
}

impl Ran {
    /// It ended done.
    ///
    /// # Panics
    /// When it did not.
    pub fn expect_done(self) -> Ran {
        self.expect(Ended::Done)
    }

    /// It ended like this.
    ///
    /// # Panics
    /// When it did not.
    pub fn expect(self, ended: Ended) -> Ran {
        assert_eq!(
            self.ended,
            Some(ended),
            "job {} ended differently: {:?}",
            self.id,
            self.error
        );
        self
    }

    /// Exactly one next link is of this kind.
    ///
    /// # Panics
    /// When none or several are.
    pub fn expect_next<J: Job>(self) -> Ran {
        let found = self.next.iter().filter(|j| j.kind == J::KIND).count();
        assert_eq!(found, 1, "next links of job {}: {:?}", self.id, self.next);
        self
    }

    /// There is no next link.
    ///
    /// # Panics
    /// When there is one.
    pub fn expect_no_next(self) -> Ran {
        assert!(self.next.is_empty(), "next links of job {}: {:?}", self.id, self.next);
        self
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
