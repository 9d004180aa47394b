//! The two shapes of handler, distinguished by their signature and stored without their types.

use std::{borrow::Cow, future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{Attempt, Batch, Ctx, DroppedTx, Outcome, Staged, Tx, staged::Outside};
use crate::{
    backoff::Backoff,
    job::Job,
    lease::Body,
    root::{Backend, Rowlock},
    store::Isolation,
};

/// A handler's future.
pub(crate) type HandlerFuture<DB> = Pin<Box<dyn Future<Output = Outcome<DB>> + Send>>;

/// An atomic handler with its job decoded, waiting for its transaction.
pub(crate) type Decoded<DB> = Box<dyn FnOnce(Tx<DB>) -> HandlerFuture<DB> + Send>;

/// A staged handler with its job decoded, waiting to start.
pub(crate) type Ready<DB> = Box<dyn FnOnce(Outside<DB>) -> HandlerFuture<DB> + Send>;

/// Decoding fails with the text that the case will show.
type Decode<DB, T> = Arc<dyn Fn(&Body, Attempt, &Rowlock<DB>) -> Result<T, String> + Send + Sync>;

/// One handler, without its job's type.
pub(crate) struct Handler<DB: Backend> {
    pub(crate) kind: Cow<'static, str>,
    /// The queue of its jobs unless set.
    pub(crate) queue: &'static str,
    pub(crate) version: i32,
    pub(crate) attempts_max: i32,
    pub(crate) time_limit: Duration,
    pub(crate) backoff: Backoff,
    /// The isolation level of the transaction that its outcome commits in.
    pub(crate) level: Isolation,
    /// How many of its jobs may share that transaction.
    pub(crate) batch: Batch,
    /// The dependencies that it is bound to.
    pub(crate) breakers: Vec<String>,
    pub(crate) shape: Shape<DB>,
}

pub(crate) enum Shape<DB: Backend> {
    /// Gets a transaction and is settled in it.
    Atomic(Decode<DB, Decoded<DB>>),
    /// Opens its own transactions, never across an effect.
    Staged(Decode<DB, Ready<DB>>),
}

impl<DB: Backend> Handler<DB> {
    pub(crate) fn atomic<A, J, F, Fut>(state: Arc<A>, f: F) -> Handler<DB>
    where
        A: Send + Sync + 'static,
        J: Job,
        F: Fn(Ctx<A, DB>, J, Tx<DB>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        let f = Arc::new(f);
        Handler::of::<J>(Shape::Atomic(Arc::new(move |body, attempt, rowlock| {
            let job = J::decode(body.version, &body.payload)?;
            let cx = Ctx {
                state: state.clone(),
                rowlock: rowlock.clone(),
                attempt,
            };
            let f = f.clone();
            Ok(Box::new(move |tx| Box::pin(f(cx, job, tx)) as HandlerFuture<DB>))
        })))
    }

    pub(crate) fn staged<A, J, F, Fut>(state: Arc<A>, f: F) -> Handler<DB>
    where
        A: Send + Sync + 'static,
        J: Job,
        F: Fn(Staged<A, DB>, J) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        let f = Arc::new(f);
        Handler::of::<J>(Shape::Staged(Arc::new(move |body, attempt, rowlock| {
            let job = J::decode(body.version, &body.payload)?;
            let (state, rowlock, f) = (state.clone(), rowlock.clone(), f.clone());
            Ok(Box::new(move |outside| {
                Box::pin(f(Staged::of_job(state, rowlock, attempt, outside), job)) as HandlerFuture<DB>
            }))
        })))
    }

    fn of<J: Job>(shape: Shape<DB>) -> Handler<DB> {
        Handler {
            kind: Cow::Borrowed(J::KIND),
            queue: J::QUEUE,
            version: J::VERSION,
            attempts_max: J::ATTEMPTS_MAX,
            time_limit: J::TIME_LIMIT,
            backoff: Backoff::DEFAULT,
            level: Isolation::default(),
            batch: Batch::NONE,
            breakers: Vec::new(),
            shape,
        }
    }
}

/// The slot and the transaction for one atomic attempt.
pub(crate) fn open<DB: Backend>(held: DB::Held, attempt: Attempt, rowlock: &Rowlock<DB>) -> (DroppedTx<DB>, Tx<DB>) {
    let dropped = DroppedTx::new();
    let tx = Tx::new(held, dropped.clone(), attempt, rowlock.clone());
    (dropped, tx)
}
