//! What a row's handler is given, and what it gives back.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{FromRow, PgConnection, Postgres, postgres::PgRow};
use uuid::Uuid;

use super::{attempt::plain, hand::RowInHand, journal::RowJournal, rows::RowShared};
use crate::{
    handle::{
        Done, Effect, EffectKey, Fail, Tx,
        atomic::{Decoded, HandlerFuture, Ready},
        journal::Effects,
        staged::Outside,
    },
    root::{InTransaction, Rowlock, sealed},
    store::postgres::adopt::RowEnd,
    worker::shared::Claims,
};

/// What a row's handler returns.
pub type RowOutcome = std::result::Result<RowDone, Fail>;

/// What a handler may know about the row in its hands, beside the row itself.
#[derive(Clone)]
pub struct RowAttempt {
    pub(super) row: Arc<RowInHand>,
    pub(super) shared: Arc<RowShared>,
}

impl std::fmt::Debug for RowAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt")
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl RowAttempt {
    /// The primary key, as text.
    pub fn id(&self) -> &str {
        &self.row.token.id
    }

    /// The row's name for the world outside: made of the table and the primary key, and of nothing that changes.
    pub fn uid(&self) -> Uuid {
        self.row.uid
    }

    /// Which attempt this is, from 1. Never build an outside key from it: it changes with every retry.
    pub fn attempt(&self) -> i32 {
        self.row.hand.ending.attempt
    }

    /// How many attempts the row has.
    pub fn attempts_max(&self) -> i32 {
        self.row.hand.ending.attempts_max
    }

    /// The token of this claim, as the row holds it.
    pub fn claim_token(&self) -> Uuid {
        self.row.token.token
    }

    /// When the row was due.
    pub fn due_at(&self) -> Timestamp {
        self.row.due_at
    }

    /// Whether the worker is stopping; a long handler should come to an end.
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.is_cancelled()
    }

    /// Resolves when the worker begins to stop. Cancel-safe.
    pub async fn stopping(&self) {
        self.shared.stopping.cancelled().await;
    }
}

/// The context of a row's atomic handler.
pub struct RowCtx<A = ()> {
    state: Arc<A>,
    attempt: RowAttempt,
}

crate::debug::debug_fields!([A] RowCtx<A>, "Ctx", attempt);

impl<A> RowCtx<A> {
    /// What the worker was given with `state`.
    pub fn state(&self) -> &A {
        &self.state
    }

    /// For enqueuing in the handler's transaction: `cx.rowlock().enqueue(&mut *tx, job)`.
    pub fn rowlock(&self) -> &Rowlock<Postgres> {
        &self.attempt.shared.rowlock
    }
}

impl<A> Deref for RowCtx<A> {
    type Target = RowAttempt;

    fn deref(&self) -> &RowAttempt {
        &self.attempt
    }
}

/// The context of a row's staged handler.
pub struct RowStaged<A = ()> {
    state: Arc<A>,
    attempt: RowAttempt,
    outside: Outside<Postgres>,
    effects: Effects,
}

crate::debug::debug_fields!([A] RowStaged<A>, "Staged", attempt);

impl<A> RowStaged<A> {
    fn new(state: Arc<A>, attempt: RowAttempt, outside: Outside<Postgres>) -> RowStaged<A> {
        let RowAttempt { row, shared } = &attempt;
        let (store, table) = (shared.store().clone(), shared.table.clone());
        let journal = RowJournal::new(store, table, row.clone(), shared.timing.lease);
        let limits = *shared.rowlock.limits();
        let effects = outside.effects(Arc::new(journal), plain(shared, row), limits);
        RowStaged {
            state,
            attempt,
            outside,
            effects,
        }
    }

    /// What the worker was given with `state`.
    pub fn state(&self) -> &A {
        &self.state
    }

    /// For enqueuing inside the transaction that `begin` gives.
    pub fn rowlock(&self) -> &Rowlock<Postgres> {
        &self.attempt.shared.rowlock
    }

    /// Goes outside under a key that is the same on every attempt of this row, also after its case was reopened. The
    /// intent is committed before `f` runs and the reply after it, both only while the claim holds; a later attempt
    /// gets the stored reply without a call. A call that ended in any other way is made again under the same key, or
    /// parks the row ([`Effect::park`]); one that fails with [`NotDone`](crate::NotDone) has not happened.
    ///
    /// A name stands for one call in a row's whole life. Where a row is worked off again and again
    /// ([`Tx::keep`](RowTx::keep)), put what tells the occasions apart into the name: `format!("mail-{}", row.round)`.
    ///
    /// # Errors
    /// Whatever `f` returns; a case for a name that is none, for a reply that cannot be stored or read back, and for a
    /// parked doubt; the end of the attempt when its claim is lost.
    ///
    /// Cancel safety: dropped half-way, the call may have happened: its effect is in doubt.
    pub fn effect<'a, T, F, Fut, E>(&'a self, name: &str, f: F) -> Effect<'a, T>
    where
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<Fail> + 'a,
    {
        Effect::new(&self.effects, name, f)
    }

    /// Opens the transaction in which your own writes and the row's end commit together.
    ///
    /// # Errors
    /// The database could not be reached. Cancel-safe: a connection dropped half-way is closed.
    pub async fn begin(self) -> std::result::Result<RowTx, Fail> {
        let RowAttempt { row, shared } = self.attempt;
        let tx = self.outside.begin(shared.rowlock.clone(), plain(&shared, &row));
        let tx = tx.await?;
        Ok(RowTx { tx, row, staged: true })
    }

    /// Done, with nothing of its own to write.
    pub fn done(self) -> RowDone {
        let RowAttempt { row, shared } = &self.attempt;
        RowDone(Done::without_writes(&plain(shared, row), &shared.rowlock))
    }
}

impl<A> Deref for RowStaged<A> {
    type Target = RowAttempt;

    fn deref(&self) -> &RowAttempt {
        &self.attempt
    }
}

/// The transaction of a row's handler: what is written through it commits with the row's end, or not at all. It derefs
/// to sqlx's connection. Ending it by hand makes the row a case, because its writes could no longer be undone.
pub struct RowTx {
    tx: Tx<Postgres>,
    row: Arc<RowInHand>,
    /// The row may have made external calls.
    staged: bool,
}

crate::debug::debug_fields!([] RowTx, "Tx");

impl RowTx {
    /// The row is done: inactive, its claim and its last error cleared, in the same commit as what the handler wrote.
    pub fn done(self) -> RowDone {
        self.done_as(RowEnd::Done)
    }

    /// This occasion is done, and the row goes on: its claim and its last error are cleared and it has all its attempts
    /// again; everything else is as your own SQL left it. Move the due time there, or it is due again at once.
    pub fn keep(self) -> RowDone {
        let calls_of = self.staged.then_some(self.row.uid);
        self.done_as(RowEnd::Kept { calls_of })
    }

    /// The row is done and goes: it is deleted in the same commit as what the handler wrote, only while the claim
    /// holds. Do not delete it by a statement of your own: its end then finds nothing, and all is rolled back.
    pub fn delete(self) -> RowDone {
        self.done_as(RowEnd::Deleted)
    }

    fn done_as(self, end: RowEnd) -> RowDone {
        self.row.done_as(end);
        RowDone(self.tx.done())
    }
}

impl Deref for RowTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for RowTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}

impl sealed::Sealed<Postgres> for RowTx {}

impl InTransaction<Postgres> for RowTx {
    fn connection(&mut self) -> &mut PgConnection {
        self
    }
}

/// Success on its way to the commit.
#[must_use = "return it from the handler, with `.ok()` or in `Ok(…)`"]
pub struct RowDone(Done<Postgres>);

crate::debug::debug_fields!([] RowDone, "Done");

impl RowDone {
    /// Ends the handler: `tx.done().ok()`.
    ///
    /// # Errors
    /// None; it has the shape that a handler returns.
    pub fn ok(self) -> RowOutcome {
        Ok(self)
    }
}

type Decode<T> = Box<dyn Fn(&PgRow, RowAttempt) -> Result<T, String> + Send + Sync>;

/// The handler, without the row's type.
pub(super) enum Handler {
    Atomic(Decode<Decoded<Postgres>>),
    Staged(Decode<Ready<Postgres>>),
}

fn read<T: for<'r> FromRow<'r, PgRow>>(row: &PgRow) -> Result<T, String> {
    T::from_row(row).map_err(|error| format!("the row cannot be read: {error}"))
}

impl Handler {
    pub(super) fn atomic<A, T, F, Fut>(state: Arc<A>, f: F) -> Handler
    where
        A: Send + Sync + 'static,
        T: for<'r> FromRow<'r, PgRow> + Send + 'static,
        F: Fn(RowCtx<A>, T, RowTx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RowOutcome> + Send + 'static,
    {
        let f = Arc::new(f);
        Handler::Atomic(Box::new(move |row, attempt| {
            let (row, f) = (read::<T>(row)?, f.clone());
            let (state, in_hand) = (state.clone(), attempt.row.clone());
            let cx = RowCtx { state, attempt };
            // Not called before it is polled: what it does before its first await may panic too.
            Ok(Box::new(move |tx| {
                let tx = RowTx {
                    tx,
                    row: in_hand,
                    staged: false,
                };
                Box::pin(async move { f(cx, row, tx).await.map(|done| done.0) }) as HandlerFuture<Postgres>
            }))
        }))
    }

    pub(super) fn staged<A, T, F, Fut>(state: Arc<A>, f: F) -> Handler
    where
        A: Send + Sync + 'static,
        T: for<'r> FromRow<'r, PgRow> + Send + 'static,
        F: Fn(RowStaged<A>, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = RowOutcome> + Send + 'static,
    {
        let f = Arc::new(f);
        Handler::Staged(Box::new(move |row, attempt| {
            let (row, f, state) = (read::<T>(row)?, f.clone(), state.clone());
            Ok(Box::new(move |outside| {
                let cx = RowStaged::new(state, attempt, outside);
                Box::pin(async move { f(cx, row).await.map(|done| done.0) }) as HandlerFuture<Postgres>
            }))
        }))
    }
}
