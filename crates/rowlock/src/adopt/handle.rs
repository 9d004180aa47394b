//! What a row's handler gets beside the row, and how it ends.

use std::{future::Future, sync::Arc};

use jiff::Timestamp;
use sqlx::{FromRow, Postgres, postgres::PgRow};
use uuid::Uuid;

use super::{attempt::plain, hand::RowInHand, journal::RowJournal, rows::RowShared};
use crate::{
    handle::{
        Ctx, Done, Fail, RowAfter, Staged, Tx,
        atomic::{Decoded, HandlerFuture, Ready},
        staged::Outside,
    },
    worker::shared::Claims,
};

/// The context of a row's atomic handler.
pub type RowCtx<A = ()> = Ctx<A, Postgres, RowAttempt>;

/// The context of a row's staged handler. An effect's name means one call in the row's whole life. If a row is worked
/// off again and again ([`Tx::keep`]), put the occasion into the name: `format!("mail-{}", row.round)`.
pub type RowStaged<A = ()> = Staged<A, Postgres, RowAttempt>;

/// The transaction of a row's handler: what is written through it commits with the row's end, or not at all.
pub type RowTx = Tx<Postgres, RowAttempt>;

/// Success on its way to the commit.
pub type RowDone = Done<Postgres, RowAttempt>;

/// What a row's handler returns.
pub type RowOutcome = std::result::Result<RowDone, Fail>;

/// What a handler may know about its row, besides the row itself.
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

    /// The row's name for external systems: made from the table and the primary key, and from nothing that changes.
    pub fn uid(&self) -> Uuid {
        self.row.uid
    }

    /// Which attempt this is, from 1. Never build an idempotency key from it: it changes with every retry.
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

impl RowTx {
    /// This occasion is done, and the row goes on: its claim and its last error are cleared and it has all its attempts
    /// again. Everything else is as your SQL left it. Move the due time in your SQL, or the row is due again
    /// immediately.
    pub fn keep(self) -> RowDone {
        Done {
            row: RowAfter::Kept,
            ..self.done()
        }
    }

    /// The row is done and is deleted in the same commit as the handler's writes, only while the claim holds. Do not
    /// delete it with your own statement: its end then finds no row, and everything is rolled back.
    pub fn delete(self) -> RowDone {
        Done {
            row: RowAfter::Deleted,
            ..self.done()
        }
    }
}

impl RowAttempt {
    fn staged<A>(self, state: Arc<A>, outside: Outside<Postgres>) -> RowStaged<A> {
        let RowAttempt { row, shared } = &self;
        let (store, table) = (shared.store().clone(), shared.table.clone());
        let journal = RowJournal::new(store, table, row.clone(), shared.timing.lease);
        let rowlock = shared.rowlock.clone();
        let effects = outside.effects(Arc::new(journal), plain(shared, row), *rowlock.limits());
        Staged::new(state, rowlock, self, outside, effects)
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
            let (state, rowlock) = (state.clone(), attempt.shared.rowlock.clone());
            let cx = Ctx {
                state,
                rowlock,
                attempt,
            };
            // Called when it is polled, because the code before its first await may panic too.
            Ok(Box::new(move |tx| {
                Box::pin(async move { f(cx, row, tx.given_for()).await.map(Done::given_for) })
                    as HandlerFuture<Postgres>
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
                let cx = attempt.staged(state, outside);
                Box::pin(async move { f(cx, row).await.map(Done::given_for) }) as HandlerFuture<Postgres>
            }))
        }))
    }
}
