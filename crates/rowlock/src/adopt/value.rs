//! A row's handler as a value.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use sqlx::{FromRow, postgres::PgRow};

use super::handle::{Handler, RowCtx, RowDone, RowStaged, RowTx};
use crate::{
    backoff::Backoff,
    breaker::Breaker,
    handle::{AtomicContext, Fail, StagedContext},
};

impl<A, R> AtomicContext<R> for RowCtx<A>
where
    A: Send + Sync + 'static,
    R: for<'r> FromRow<'r, PgRow> + Send + 'static,
{
    type Tx = RowTx;
    type Done = RowDone;
    type Handler = RowHandler<A>;

    fn handler<F, Fut>(f: F) -> RowHandler<A>
    where
        F: Fn(Self, R, RowTx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RowDone, Fail>> + Send + 'static,
    {
        RowHandler::new(|state| Handler::atomic(state, f))
    }
}

impl<A, R> StagedContext<R> for RowStaged<A>
where
    A: Send + Sync + 'static,
    R: for<'r> FromRow<'r, PgRow> + Send + 'static,
{
    type Done = RowDone;
    type Handler = RowHandler<A>;

    fn handler<F, Fut>(f: F) -> RowHandler<A>
    where
        F: Fn(Self, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RowDone, Fail>> + Send + 'static,
    {
        RowHandler::new(|state| Handler::staged(state, f))
    }
}

/// A function that handles the rows of a table, with its settings. [`atomic`](crate::atomic) and
/// [`staged`](crate::staged) make one from a function whose context is a [`Ctx`](RowCtx) or a [`Staged`](RowStaged).
///
/// The whole row is read into the type that the function takes. A row that cannot be read is retired immediately.
#[must_use = "give it to the worker of a table: `worker.handle(…)`"]
pub struct RowHandler<A = ()> {
    pub(super) backoff: Backoff,
    pub(super) time_limit: Duration,
    pub(super) breakers: Vec<(String, Breaker)>,
    bind: Box<dyn FnOnce(Arc<A>) -> Handler + Send>,
}

impl<A> RowHandler<A> {
    fn new(bind: impl FnOnce(Arc<A>) -> Handler + Send + 'static) -> RowHandler<A> {
        RowHandler {
            backoff: Backoff::DEFAULT,
            time_limit: Duration::from_secs(600),
            breakers: Vec::new(),
            bind: Box::new(bind),
        }
    }

    /// How far a failure moves the due time.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// A handler that runs longer is cut off and the attempt fails (10 min unless set).
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Binds the table to a dependency by name, as [`Handler::breaker`](crate::Handler::breaker) binds a kind: while
    /// the breaker is not closed, no row is claimed except for probes. Probes are counted for each table separately.
    pub fn breaker(mut self, name: impl Into<String>, breaker: Breaker) -> Self {
        self.breakers.push((name.into(), breaker));
        self
    }

    pub(super) fn bind(self, state: Arc<A>) -> Handler {
        (self.bind)(state)
    }
}

impl<A> fmt::Debug for RowHandler<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("backoff", &self.backoff)
            .field("time_limit", &self.time_limit)
            .field("breakers", &self.breakers)
            .finish_non_exhaustive()
    }
}
