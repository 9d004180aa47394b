//! What a row's handler is given, and what it gives back.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use jiff::Timestamp;
use sqlx::{FromRow, PgConnection, Postgres, postgres::PgRow};
use uuid::Uuid;

use super::{effect::RowEffect, hand::RowInHand, run::Shared};
use crate::{
    handle::{EffectKey, Fail},
    lease::Token,
    root::{InTransaction, Rowlock, sealed},
    store::{Isolation, Room, postgres::adopt::RowEnd},
};

pub(super) type HeldTx = <Postgres as Room>::Held;

/// What a row's handler returns.
pub type RowOutcome = std::result::Result<RowDone, Fail>;

pub(super) type Outcome = Pin<Box<dyn Future<Output = RowOutcome> + Send>>;

/// What a handler may know about the row in its hands, beside the row itself.
#[derive(Clone)]
pub struct RowAttempt {
    pub(super) row: Arc<RowInHand>,
    pub(super) shared: Arc<Shared>,
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
    pub fn attempt(&self) -> i64 {
        self.row.attempt
    }

    /// How many attempts the row has.
    pub fn attempts_max(&self) -> i64 {
        self.row.attempts_max
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
    slot: Slot,
}

crate::debug::debug_fields!([A] RowStaged<A>, "Staged", attempt);

impl<A> RowStaged<A> {
    /// What the worker was given with `state`.
    pub fn state(&self) -> &A {
        &self.state
    }

    /// For enqueuing inside the transaction that `begin` gives.
    pub fn rowlock(&self) -> &Rowlock<Postgres> {
        &self.attempt.shared.rowlock
    }

    /// Goes outside under a key that is the same on every attempt of this row, also after its case was reopened. The intent
    /// is committed before `f` runs and the reply after it, both only while the claim holds; a later attempt gets the stored
    /// reply without a call. A call that ended in any other way is made again under the same key, or parks the row
    /// ([`Effect::park`](RowEffect::park)); one that fails with [`NotDone`](crate::NotDone) has not happened.
    ///
    /// A name stands for one call in a row's whole life. Where a row is worked off again and again ([`Tx::keep`](RowTx::keep)), put
    /// what tells the occasions apart into the name: `format!("mail-{}", row.round)`.
    ///
    /// # Errors
    /// Whatever `f` returns; a case for a name that is none, for a reply that cannot be stored or read back, and for a parked
    /// doubt; the end of the attempt when its claim is lost.
    ///
    /// Cancel safety: dropped half-way, the call may have happened: its effect is in doubt.
    pub fn effect<'a, T, F, Fut, E>(&'a self, name: &str, f: F) -> RowEffect<'a, T>
    where
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'a,
        T: Send + 'a,
        E: Into<Fail> + 'a,
    {
        RowEffect::new(&self.attempt, name, f)
    }

    /// Opens the transaction in which your own writes and the row's end commit together.
    ///
    /// # Errors
    /// The database could not be reached. Cancel-safe: a connection dropped half-way is closed.
    pub async fn begin(self) -> std::result::Result<RowTx, Fail> {
        let RowAttempt { row, shared } = &self.attempt;
        let (store, timing, marker) = (shared.store.clone(), shared.timing, row.marker);
        // On a task of its own, so that a caller dropped half-way cannot leave a transaction half-opened.
        let begun = tokio::spawn(async move { begin(&store, &marker, timing).await });
        let held = match begun.await {
            Ok(begun) => begun?,
            Err(_) => return Err(Fail::retry("could not begin the transaction")),
        };
        row.holder.store(Postgres::holder(&held), Ordering::Relaxed);
        Ok(RowTx {
            held: Some(held),
            slot: self.slot,
        })
    }

    /// Done, with nothing of its own to write.
    pub fn done(self) -> RowDone {
        RowDone {
            end: RowEnd::Done,
            held: None,
        }
    }
}

impl<A> Deref for RowStaged<A> {
    type Target = RowAttempt;

    fn deref(&self) -> &RowAttempt {
        &self.attempt
    }
}

pub(super) async fn begin(
    store: &<Postgres as Room>::Store,
    marker: &Token,
    timing: crate::store::Timing,
) -> crate::Result<HeldTx> {
    Postgres::begin(store, marker, timing, Isolation::ReadCommitted).await
}

/// Where a dropped transaction leaves its connection for the engine.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<HeldTx>>>);

impl Slot {
    pub(super) fn take(&self) -> Option<HeldTx> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, held: HeldTx) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}

/// The transaction of a row's handler: what is written through it commits with the row's end, or not at all. It derefs to
/// sqlx's connection. Ending it by hand makes the row a case, because its writes could no longer be undone.
pub struct RowTx {
    // Taken only by what consumes the value, and by drop.
    held: Option<HeldTx>,
    slot: Slot,
}

crate::debug::debug_fields!([] RowTx, "Tx");

impl RowTx {
    pub(super) fn new(held: HeldTx, slot: Slot) -> RowTx {
        RowTx { held: Some(held), slot }
    }

    /// The row is done: inactive, its claim and its last error cleared, in the same commit as what the handler wrote.
    pub fn done(self) -> RowDone {
        self.ended(RowEnd::Done)
    }

    /// This occasion is done, and the row goes on: its claim and its last error are cleared and it has all its attempts
    /// again; everything else is as your own SQL left it. Move the due time there, or it is due again at once.
    pub fn keep(self) -> RowDone {
        self.ended(RowEnd::Kept)
    }

    /// The row is done and goes: it is deleted in the same commit as what the handler wrote, only while the claim holds. Do
    /// not delete it by a statement of your own: its end then finds nothing, and all is rolled back.
    pub fn delete(self) -> RowDone {
        self.ended(RowEnd::Deleted)
    }

    fn ended(mut self, end: RowEnd) -> RowDone {
        RowDone {
            end,
            held: self.held.take(),
        }
    }
}

impl Drop for RowTx {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.slot.put(held);
        }
    }
}

impl Deref for RowTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.held {
            Some(held) => Postgres::conn_ref(held),
            None => unreachable!("a transaction gives its connection up only when consumed"),
        }
    }
}

impl DerefMut for RowTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.held {
            Some(held) => Postgres::conn(held),
            None => unreachable!("a transaction gives its connection up only when consumed"),
        }
    }
}

impl sealed::Sealed<Postgres> for RowTx {}

impl InTransaction<Postgres> for RowTx {
    fn connection(&mut self) -> &mut PgConnection {
        self
    }
}

/// Success on its way to the commit.
#[must_use = "return it from the handler with `.ok()`"]
pub struct RowDone {
    pub(super) end: RowEnd,
    pub(super) held: Option<HeldTx>,
}

crate::debug::debug_fields!([] RowDone, "Done", end);

impl RowDone {
    /// Ends the handler: `tx.done().ok()`.
    ///
    /// # Errors
    /// None; it has the shape that a handler returns.
    pub fn ok(self) -> RowOutcome {
        Ok(self)
    }
}

/// An atomic handler with its row read, waiting for its transaction.
pub(super) type Decoded = Box<dyn FnOnce(RowTx) -> Outcome + Send>;
/// A staged one, waiting to be let out.
pub(super) type Ready = Box<dyn FnOnce(Slot) -> Outcome + Send>;

type Decode<T> = Box<dyn Fn(&PgRow, RowAttempt) -> Result<T, String> + Send + Sync>;

/// The handler, without the row's type.
pub(super) enum Handler {
    Atomic(Decode<Decoded>),
    Staged(Decode<Ready>),
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
            let cx = RowCtx {
                state: state.clone(),
                attempt,
            };
            // Not called before it is polled: what it does before its first await may panic too.
            Ok(Box::new(move |tx| {
                Box::pin(async move { f(cx, row, tx).await }) as Outcome
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
            Ok(Box::new(move |slot| {
                let cx = RowStaged { state, attempt, slot };
                Box::pin(async move { f(cx, row).await }) as Outcome
            }))
        }))
    }
}
