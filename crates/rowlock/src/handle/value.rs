//! Handlers as values: a function and its settings, made by [`atomic`] or [`staged`] and given to a worker or a test
//! rig.

use std::{borrow::Cow, fmt, future::Future, marker::PhantomData, sync::Arc};

use super::{Batch, Ctx, Done, Fail, NamedKind, Outcome, RawJob, Staged, Tx, atomic::Handler as Bound};
use crate::{backoff::Backoff, breaker::Breaker, job::Job, root::Backend, store::Isolation};

/// A handler that runs in a transaction, which commits with the job's outcome: `async fn(Ctx, J, Tx) -> Outcome`.
///
/// The value carries the handler's settings. [`Worker::handle`](crate::Worker::handle) and
/// [`TestRig::handle`](crate::rig::TestRig::handle) take it, and
/// `adopt::Worker::handle` takes one whose function is written for a row.
///
/// ```
/// use rowlock::{Batch, Job, sqlite::*};
///
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # struct Greet { name: String }
/// async fn greet(cx: Ctx, job: Greet, mut tx: Tx) -> Outcome {
///     let insert = sqlx::query("insert into greeting values ($1)");
///     insert.bind(job.name).execute(&mut *tx).await?;
///     tx.done().ok()
/// }
///
/// # fn serve(rowlock: &Rowlock) -> Worker {
/// Worker::new(rowlock)
///     .queue("mail", 16)
///     .handle(atomic(greet).batch(Batch::up_to(10)))
/// # }
/// ```
///
/// A handler whose context has a state fits only a worker with a state of that type:
///
/// ```compile_fail,E0308
/// # use rowlock::{Job, sqlite::*};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # struct Greet { name: String }
/// struct App;
///
/// async fn greet(cx: Ctx<App>, job: Greet, tx: Tx) -> Outcome {
///     tx.done().ok()
/// }
///
/// # fn serve(rowlock: &Rowlock) -> Worker {
/// Worker::new(rowlock).handle(atomic(greet)) // expected `()`, found `App`: `.state(App)` is missing
/// # }
/// ```
pub fn atomic<C, J, F, Fut>(handler: F) -> C::Handler
where
    C: AtomicContext<J>,
    F: Fn(C, J, C::Tx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<C::Done, Fail>> + Send + 'static,
{
    C::handler(handler)
}

/// A handler that runs in stages: read, call external systems, then open a transaction and settle:
/// `async fn(Staged, J) -> Outcome`. No transaction is open during an external call.
///
/// The value carries the handler's settings. Use it wherever a value of [`atomic`] fits.
pub fn staged<C, J, F, Fut>(handler: F) -> C::Handler
where
    C: StagedContext<J>,
    F: Fn(C, J) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<C::Done, Fail>> + Send + 'static,
{
    C::handler(handler)
}

/// The first argument of an atomic handler for `J`: [`Ctx`] for a job, `adopt::Ctx` for a row.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the context of an atomic handler for `{J}`",
    note = "an atomic handler takes a `Ctx`, its job and a `Tx`; the job derives `Job`",
    note = "a handler that takes a `Staged` and its job is made with `staged(…)`"
)]
pub trait AtomicContext<J>: sealed::Context + Sized {
    /// The transaction that the handler is given.
    type Tx;
    /// What the handler returns when it succeeds.
    type Done;
    /// The value that [`atomic`] makes.
    type Handler;

    #[doc(hidden)]
    fn handler<F, Fut>(f: F) -> Self::Handler
    where
        F: Fn(Self, J, Self::Tx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Self::Done, Fail>> + Send + 'static;
}

/// The first argument of a staged handler for `J`: [`Staged`] for a job, `adopt::Staged` for a row.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the context of a staged handler for `{J}`",
    note = "a staged handler takes a `Staged` and its job; the job derives `Job`",
    note = "a kind that is known by its name alone is served with `NamedKind::new(…).staged(…)`"
)]
pub trait StagedContext<J>: sealed::Context + Sized {
    /// What the handler returns when it succeeds.
    type Done;
    /// The value that [`staged`] makes.
    type Handler;

    #[doc(hidden)]
    fn handler<F, Fut>(f: F) -> Self::Handler
    where
        F: Fn(Self, J) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Self::Done, Fail>> + Send + 'static;
}

pub(crate) mod sealed {
    /// Only this crate has contexts, because a worker must know how to make one.
    pub trait Context {}
}

impl<A, DB: Backend, T> sealed::Context for Ctx<A, DB, T> {}
impl<A, DB: Backend, T> sealed::Context for Staged<A, DB, T> {}

impl<A: Send + Sync + 'static, DB: Backend, J: Job> AtomicContext<J> for Ctx<A, DB> {
    type Tx = Tx<DB>;
    type Done = Done<DB>;
    type Handler = Handler<A, DB, Tx<DB>>;

    fn handler<F, Fut>(f: F) -> Self::Handler
    where
        F: Fn(Self, J, Tx<DB>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<DB>, Fail>> + Send + 'static,
    {
        Handler::new(J::KIND, |state| Bound::atomic(state, f))
    }
}

impl<A: Send + Sync + 'static, DB: Backend, J: Job> StagedContext<J> for Staged<A, DB> {
    type Done = Done<DB>;
    type Handler = Handler<A, DB>;

    fn handler<F, Fut>(f: F) -> Self::Handler
    where
        F: Fn(Self, J) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done<DB>, Fail>> + Send + 'static,
    {
        Handler::new(J::KIND, |state| Bound::staged(state, f))
    }
}

impl NamedKind {
    /// A staged handler for the jobs of this kind, with their payload as it is stored: for a program that learns its
    /// kinds at start. Otherwise it is a handler as [`staged`] makes it.
    pub fn staged<A, DB, F, Fut>(self, handler: F) -> Handler<A, DB>
    where
        A: Send + Sync + 'static,
        DB: Backend,
        F: Fn(Staged<A, DB>, RawJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        Handler::new(self.kind.clone(), |state| Bound::staged_named(state, self, handler))
    }
}

/// A function that handles jobs of one kind, with its settings. [`atomic`], [`staged`] and [`NamedKind::staged`] make
/// it.
///
/// `A` is the state that its context has. `T` is what it gets beside its job: a [`Tx`] if it is atomic, nothing if it
/// is staged.
#[must_use = "give it to a worker: `worker.handle(…)`"]
pub struct Handler<A, DB: Backend, T = ()> {
    kind: Cow<'static, str>,
    backoff: Backoff,
    level: Isolation,
    batch: Batch,
    breakers: Vec<(String, Breaker)>,
    bind: Box<dyn FnOnce(Arc<A>) -> Bound<DB> + Send>,
    given: PhantomData<fn(T)>,
}

impl<A, DB: Backend, T> Handler<A, DB, T> {
    fn new(kind: impl Into<Cow<'static, str>>, bind: impl FnOnce(Arc<A>) -> Bound<DB> + Send + 'static) -> Self {
        Handler {
            kind: kind.into(),
            backoff: Backoff::DEFAULT,
            level: Isolation::default(),
            batch: Batch::NONE,
            breakers: Vec::new(),
            bind: Box::new(bind),
            given: PhantomData,
        }
    }

    /// The delay between the attempts of a job.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The isolation level of the transaction that the outcome commits in (read committed unless set; SQLite has one
    /// level and ignores this). Serialisation failures and deadlocks at any level are tried again soon. The attempt is
    /// given back, a hundred times at most.
    pub fn isolation(mut self, level: Isolation) -> Self {
        self.level = level;
        self
    }

    /// Binds the kind to a dependency by name. After this many [`Fail::dependency`] in a row, of any worker, the
    /// breaker opens for the whole fleet: no worker claims the kinds that are bound to it. Jobs that were claimed and
    /// not started are handed back, so no attempt is used up. After its cooldown, a few probes are let through. The
    /// first probe that succeeds closes the breaker. A probe that fails opens it for longer and gets its attempt back.
    ///
    /// A kind may be bound to several breakers. Several kinds may be bound to the same one, then with the same
    /// settings. A time limit, a panic or any other `Fail` says nothing about a dependency. A test rig has no breakers.
    pub fn breaker(mut self, name: impl Into<String>, breaker: Breaker) -> Self {
        self.breakers.push((name.into(), breaker));
        self
    }

    /// The handler with its state, and the breakers that it names.
    pub(crate) fn bind(self, state: Arc<A>) -> (Bound<DB>, Vec<(String, Breaker)>) {
        let mut names: Vec<String> = self.breakers.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        let bound = Bound {
            backoff: self.backoff,
            level: self.level,
            batch: self.batch,
            breakers: names,
            ..(self.bind)(state)
        };
        (bound, self.breakers)
    }
}

impl<A, DB: Backend> Handler<A, DB, Tx<DB>> {
    /// Runs up to this many jobs in one transaction and one commit: `Batch::up_to(10)`.
    ///
    /// The handler does not change. The jobs that wait for this slot run in the transaction one after another, each
    /// under its own savepoint. A job that fails or panics is rolled back alone, and its failure is settled with the
    /// others' success. Some problems cannot be rolled back alone: a lost lease, a serialisation failure or deadlock, a
    /// commit that fails, a broken connection, the time limit, a `commit` by hand. They roll all jobs back, and the
    /// jobs that are not to blame are run again immediately, each in its own transaction, in the same attempt
    /// ([`Event::BatchUndone`](crate::Event::BatchUndone)). So a handler may run more than once per attempt; at most
    /// one run's writes through its `Tx` commit.
    ///
    /// A handler in a batch must be short and do nothing but SQL: rows that the first job locked stay locked until the
    /// last one's commit. The handler sees what the jobs before it wrote. It must not end the transaction by hand,
    /// which fails here and makes a case of its job. It must not close all cursors either, because PostgreSQL detects
    /// an ended transaction with a cursor. A job whose worker was lost always runs in its own transaction. A test rig
    /// runs one job at a time.
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = batch;
        self
    }
}

impl<A, DB: Backend, T> fmt::Debug for Handler<A, DB, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("kind", &self.kind)
            .field("backoff", &self.backoff)
            .field("isolation", &self.level)
            .field("batch", &self.batch)
            .field("breakers", &self.breakers)
            .finish_non_exhaustive()
    }
}
