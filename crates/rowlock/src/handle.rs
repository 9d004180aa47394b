//! Run user code: what a handler gets, and what it returns.
//!
//! The handler owns the transaction and hands it back through the return value. [`Done`] can only be made from a [`Tx`]
//! (or from a staged context that needs none), so an atomic handler cannot report success without handing its
//! transaction back. A `Tx` that is dropped on the way (an error, a panic) leaves its connection in a `DroppedTx` that
//! the engine holds; the engine rolls back to its savepoint there and records the failure.

mod answer;
pub(crate) mod atomic;
mod batch;
mod effect;
mod fail;
mod fragile;
mod guard;
mod hook;
pub(crate) mod journal;
mod lock;
mod named;
mod once;
pub(crate) mod rollout;
pub(crate) mod staged;
mod transition;
pub(crate) mod value;

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::{
    batch::Batch,
    effect::{Effect, EffectKey},
    fail::Fail,
    guard::{Guard, Guards},
    lock::{BodyLock, TakeLock},
    named::{NamedKind, RawJob},
    once::{Answer, LookOnce, Once, OnceSlot, TakeOnce},
    rollout::RolloutCount,
    staged::{Prepare, Staged},
    transition::Transition,
    value::{AtomicContext, Handler, StagedContext, atomic, staged},
};
pub(crate) use self::{
    fail::{How, clean},
    fragile::{Fragile, panic_text},
    hook::Hook,
    journal::{Emit, Held},
};
pub use crate::store::transition::RowId;
use crate::{
    enqueue::JobOptions,
    error::{AlreadyHandled, Error},
    id::JobId,
    job::{Draft, Job, Limits},
    lease::{Claimed, Token},
    root::{Backend, InTransaction, Rowlock},
};

/// What a handler returns.
pub type Outcome<DB> = std::result::Result<Done<DB>, Fail>;

/// What every handler may know about its job.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(crate) token: Token,
    pub(crate) uid: Uuid,
    pub(crate) attempt: i32,
    pub(crate) attempts_max: i32,
    pub(crate) chain: i64,
    pub(crate) position: i32,
    pub(crate) queue: String,
    pub(crate) created_at: Timestamp,
    pub(crate) recovered: bool,
    pub(crate) trace: Option<String>,
    pub(crate) stopping: CancellationToken,
}

impl Attempt {
    pub(crate) fn of(claimed: &Claimed, stopping: CancellationToken) -> Attempt {
        let body = claimed.body.as_ref();
        Attempt {
            token: claimed.token,
            uid: body.map(|b| b.uid).unwrap_or_default(),
            attempt: claimed.attempt,
            attempts_max: claimed.attempts_max,
            chain: body.and_then(|b| b.chain).unwrap_or(claimed.token.id),
            position: body.map(|b| b.position).unwrap_or_default(),
            queue: body.map(|b| b.queue.clone()).unwrap_or_default(),
            created_at: body.map(|b| b.created_at).unwrap_or_default(),
            recovered: claimed.alone,
            trace: body.and_then(|b| b.trace.clone()),
            stopping,
        }
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.token.id.into()
    }

    /// The job's name for external systems; effect keys derive from it.
    pub fn uid(&self) -> Uuid {
        self.uid
    }

    /// Which attempt this is, from 1. Never build an idempotency key from it: it changes with every retry.
    pub fn attempt(&self) -> i32 {
        self.attempt
    }

    /// How many attempts the job has.
    pub fn attempts_max(&self) -> i32 {
        self.attempts_max
    }

    /// A number that rises with every claim of the job, for ever: a fencing token for external systems.
    pub fn epoch(&self) -> i64 {
        self.token.epoch
    }

    /// The first job of this chain.
    pub fn chain(&self) -> JobId {
        self.chain.into()
    }

    /// The queue it came from.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// When it was enqueued, by the database's clock.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// The W3C trace context of the enqueuing code. Pass it on as the `traceparent` header of external calls.
    pub fn traceparent(&self) -> Option<&str> {
        let trace = self.trace.as_deref()?;
        Some(trace.split_once(' ').map_or(trace, |(parent, _)| parent))
    }

    /// The `tracestate` that belongs to [`Attempt::traceparent`], if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        let (_, state) = self.trace.as_deref()?.split_once(' ')?;
        Some(state).filter(|state| !state.is_empty())
    }

    /// Whether the worker that had the job before was lost; the job then runs alone until it is settled once.
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Whether the worker is stopping; a long handler should come to an end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Resolves when the worker begins to stop. Cancel-safe.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }
}

/// The context of an atomic handler: typed state, the attempt, and a handle for enqueuing.
///
/// `T` is what the handler may know about its attempt: an [`Attempt`] for a job, an `adopt::Attempt` for a row.
pub struct Ctx<A, DB: Backend, T = Attempt> {
    pub(crate) state: Arc<A>,
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) attempt: T,
}

crate::debug::debug_fields!([A, DB: Backend, T: std::fmt::Debug] Ctx<A, DB, T>, "Ctx", attempt);

impl<A, DB: Backend, T> Ctx<A, DB, T> {
    /// What the worker was given with `state`.
    pub fn state(&self) -> &A {
        &self.state
    }

    /// For enqueuing in the handler's transaction: `cx.rowlock().enqueue(&mut tx, job)`.
    pub fn rowlock(&self) -> &Rowlock<DB> {
        &self.rowlock
    }
}

impl<A, DB: Backend, T> Deref for Ctx<A, DB, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.attempt
    }
}

/// Where a dropped transaction leaves its connection for the engine.
pub(crate) struct DroppedTx<DB: Backend>(Arc<Mutex<Option<DB::Held>>>);

impl<DB: Backend> DroppedTx<DB> {
    pub(crate) fn new() -> Self {
        DroppedTx(Arc::default())
    }

    pub(crate) fn take(&self) -> Option<DB::Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, held: DB::Held) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}

impl<DB: Backend> Clone for DroppedTx<DB> {
    fn clone(&self) -> Self {
        DroppedTx(self.0.clone())
    }
}

/// A handler's transaction: everything written through it commits with the outcome, or not at all.
///
/// It derefs to sqlx's connection, so any query runs on `&mut *tx`. A nested `begin` is a savepoint. Ending the
/// transaction by hand (a raw `commit`) makes the job a case, because its writes could no longer be undone.
pub struct Tx<DB: Backend, T = Attempt> {
    // Taken only by `done` and by drop, which both consume the value.
    held: Option<DB::Held>,
    dropped: DroppedTx<DB>,
    pub(crate) attempt: Attempt,
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) hooks: Vec<Hook>,
    of: PhantomData<fn(T)>,
}

crate::debug::debug_fields!([DB: Backend, T] Tx<DB, T>, "Tx", attempt);

impl<DB: Backend, T> Tx<DB, T> {
    pub(crate) fn new(held: DB::Held, dropped: DroppedTx<DB>, attempt: Attempt, rowlock: Rowlock<DB>) -> Self {
        Tx {
            held: Some(held),
            dropped,
            attempt,
            rowlock,
            hooks: Vec::new(),
            of: PhantomData,
        }
    }

    /// The same transaction, for a handler with another attempt type.
    pub(crate) fn given_for<U>(mut self) -> Tx<DB, U> {
        Tx {
            held: self.held.take(),
            dropped: self.dropped.clone(),
            attempt: self.attempt.clone(),
            rowlock: self.rowlock.clone(),
            hooks: std::mem::take(&mut self.hooks),
            of: PhantomData,
        }
    }

    /// The job or row is done. The handler's writes are kept only if you call this. A row is then inactive, with its
    /// claim and its last error cleared in the same commit.
    pub fn done(mut self) -> Done<DB, T> {
        let held = self.held.take();
        Done {
            held: held.map(|held| Handed {
                held: Some(held),
                dropped: self.dropped.clone(),
            }),
            hooks: std::mem::take(&mut self.hooks),
            ..Done::without_writes(&self.attempt, &self.rowlock)
        }
    }
}

impl<DB: Backend, T> Drop for Tx<DB, T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.dropped.put(held);
        }
    }
}

impl<DB: Backend, T> Deref for Tx<DB, T> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.held {
            Some(held) => held,
            None => unreachable!("a transaction gives its connection up only when consumed"),
        }
    }
}

impl<DB: Backend, T> DerefMut for Tx<DB, T> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match &mut self.held {
            Some(held) => held,
            None => unreachable!("a transaction gives its connection up only when consumed"),
        }
    }
}

impl<DB: Backend, T> crate::root::sealed::Sealed<DB> for Tx<DB, T> {}

impl<DB: Backend, T> InTransaction<DB> for Tx<DB, T> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

/// A connection on its way back to the engine. If it is dropped before it arrives, it waits in `DroppedTx`.
pub(crate) struct Handed<DB: Backend> {
    held: Option<DB::Held>,
    dropped: DroppedTx<DB>,
}

impl<DB: Backend> Handed<DB> {
    pub(crate) fn arrive(mut self) -> Option<DB::Held> {
        self.held.take()
    }
}

impl<DB: Backend> Drop for Handed<DB> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.dropped.put(held);
        }
    }
}

/// Where the next link of a chain goes.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    chain: i64,
    position: i32,
    trace: Option<String>,
    limits: Limits,
}

impl Link {
    pub(crate) fn after(attempt: &Attempt, limits: Limits) -> Link {
        Link {
            chain: attempt.chain,
            position: attempt.position.saturating_add(1),
            trace: attempt.trace.clone(),
            limits,
        }
    }
}

/// Success on its way to the commit: the transaction, the result, and the next links.
#[must_use = "return it from the handler, with `.ok()` or in `Ok(…)`"]
pub struct Done<DB: Backend, T = Attempt> {
    pub(crate) token: Token,
    pub(crate) link: Link,
    pub(crate) held: Option<Handed<DB>>,
    pub(crate) result: Option<String>,
    pub(crate) next: Vec<Draft>,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) error: Option<Error>,
    /// What to do with the row; a job ends in one way.
    pub(crate) row: RowAfter,
    pub(crate) of: PhantomData<fn(T)>,
}

/// What to do with a row whose handler succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowAfter {
    #[default]
    Inactive,
    Kept,
    Deleted,
}

crate::debug::debug_fields!([DB: Backend, T] Done<DB, T>, "Done", token, error);

impl<DB: Backend, T> Done<DB, T> {
    /// For a staged handler without a transaction: the engine settles it in a batch.
    pub(crate) fn without_writes(attempt: &Attempt, rowlock: &Rowlock<DB>) -> Done<DB, T> {
        Done {
            token: attempt.token,
            link: Link::after(attempt, *rowlock.limits()),
            held: None,
            result: None,
            next: Vec::new(),
            hooks: Vec::new(),
            error: None,
            row: RowAfter::default(),
            of: PhantomData,
        }
    }

    /// The same success, for a handler with another attempt type.
    pub(crate) fn given_for<U>(self) -> Done<DB, U> {
        let Done {
            token,
            link,
            held,
            result,
            next,
            hooks,
            error,
            row,
            ..
        } = self;
        Done {
            token,
            link,
            held,
            result,
            next,
            hooks,
            error,
            row,
            of: PhantomData,
        }
    }

    /// Ends the handler: `tx.done().then(next).ok()`. `Ok(tx.done().then(next))` is the same.
    ///
    /// # Errors
    /// A next job or result that was refused fails the attempt; nothing is written.
    pub fn ok(mut self) -> std::result::Result<Done<DB, T>, Fail> {
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(self),
        }
    }
}

impl<DB: Backend> Done<DB> {
    /// Enqueues the next link of this chain in the same commit. Call it again for several next jobs.
    pub fn then<J: Job>(self, job: J) -> Self {
        self.then_with(job, JobOptions::new())
    }

    /// [`Done::then`] with options for the next job.
    pub fn then_with<J: Job>(mut self, job: J, options: JobOptions) -> Self {
        match options.draft(&job, &self.link.limits) {
            Ok(draft) => self.next.push(Draft {
                chain: Some(self.link.chain),
                position: self.link.position,
                // If no span is recorded for the attempt, the trace continues as it came.
                trace: draft.trace.or_else(|| self.link.trace.clone()),
                ..draft
            }),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Stores the handler's result beside the outcome, in the same commit.
    pub fn result<T: Serialize>(mut self, result: &T) -> Self {
        match serde_json::to_string(result) {
            Ok(json) => match crate::job::check_payload(&json, &self.link.limits) {
                Ok(()) => self.result = Some(json),
                Err(Error::Invalid { problem, .. }) => {
                    self.error = self.error.or(Some(Error::invalid("result", problem)));
                }
                Err(other) => self.error = self.error.or(Some(other)),
            },
            Err(e) => {
                let problem = format!("cannot be written as JSON: {e}");
                self.error = self.error.or(Some(Error::invalid("result", problem)));
            }
        }
        self
    }
}

/// Zero matched rows mean that the work was done already.
pub trait Applied: Sized {
    /// Turns zero affected rows into [`AlreadyHandled`], which settles the job as done and is counted.
    ///
    /// # Errors
    /// [`AlreadyHandled`] when no row was affected.
    fn applied(self) -> std::result::Result<Self, AlreadyHandled>;
}

macro_rules! applied {
    ($result:ty) => {
        impl Applied for $result {
            fn applied(self) -> std::result::Result<Self, AlreadyHandled> {
                if self.rows_affected() == 0 {
                    return Err(AlreadyHandled);
                }
                Ok(self)
            }
        }
    };
}

#[cfg(feature = "postgres")]
applied!(sqlx::postgres::PgQueryResult);
#[cfg(feature = "sqlite")]
applied!(sqlx::sqlite::SqliteQueryResult);
