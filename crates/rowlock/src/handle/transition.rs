//! The where-status pattern on the user's own tables: one update, where zero rows mean that the work was done already.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use super::Tx;
use crate::{
    error::{AlreadyHandled, Error, Result},
    root::{Backend, InTransaction, Rowlock},
    store::transition::{Move, RowId},
};

/// A transition that is being configured; name other columns if needed, then `.await` it.
#[must_use = "nothing moves until this is awaited"]
pub struct Transition<'a, DB: Backend> {
    store: DB::Store,
    conn: &'a mut DB::Connection,
    step: Move,
}

crate::debug::debug_fields!([DB: Backend] Transition<'_, DB>, "Transition");

impl<DB: Backend> Transition<'_, DB> {
    /// The column that holds the status (`status` unless set).
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.step.column = column.into();
        self
    }

    /// The column that names the row (`id` unless set); no two rows may share a value in it.
    pub fn id_column(mut self, column: impl Into<String>) -> Self {
        self.step.id_column = column.into();
        self
    }

    async fn apply(self) -> Result<()> {
        let step = self.step;
        step.check()?;
        match DB::transition(&self.store, self.conn, &step).await? {
            1 => Ok(()),
            0 => Err(Error::AlreadyHandled {
                what: format!(
                    "row {} of {} does not have the status {:?}",
                    step.id, step.table, step.from
                ),
                source: AlreadyHandled,
            }),
            rows => Err(Error::invalid(
                "id_column",
                format!(
                    "{:?} matches {rows} rows of {}; roll back, and use a unique column",
                    step.id_column, step.table
                ),
            )),
        }
    }
}

impl<'a, DB: Backend> IntoFuture for Transition<'a, DB> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.apply())
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Moves one row of your table from one status to another, if it still has the first:
    /// `rowlock.transition(&mut tx, "orders", id, "pending", "paid").await?`. Of two concurrent callers, one moves it.
    ///
    /// Names are written as the database stores them, `orders` or `shop.orders`; the id is a number, a text or a uuid.
    /// The status column may be text, an enum or a number.
    ///
    /// # Errors
    /// [`Error::AlreadyHandled`], with [`AlreadyHandled`] as its source, when the row does not have that status.
    /// [`Error::Invalid`] before any SQL for a refused name or text and for a status moved to itself, and after the SQL
    /// when the id named several rows. [`Error::TryAgain`] when another transaction is in the way; [`Error::Database`].
    ///
    /// Cancel safety: dropped half-way, the caller's connection is in the middle of a statement; roll back and drop it.
    pub fn transition<'a>(
        &self,
        tx: &'a mut impl InTransaction<DB>,
        table: impl Into<String>,
        id: impl Into<RowId>,
        from: impl Into<String>,
        to: impl Into<String>,
    ) -> Transition<'a, DB> {
        Transition {
            store: self.store().clone(),
            conn: tx.connection(),
            step: Move {
                table: table.into(),
                id_column: "id".into(),
                column: "status".into(),
                id: id.into(),
                from: from.into(),
                to: to.into(),
            },
        }
    }
}

impl<DB: Backend, T> Tx<DB, T> {
    /// Moves one row of your table from one status to another, if it still has the first: see [`Rowlock::transition`].
    /// Through the handler's `?`, a row that was moved already settles the job as done, without an error, and is
    /// counted. If the job made an external call, it becomes a case instead.
    ///
    /// # Errors
    /// As [`Rowlock::transition`]. Cancel safety: the engine does not use the connection again.
    pub fn transition(
        &mut self,
        table: impl Into<String>,
        id: impl Into<RowId>,
        from: impl Into<String>,
        to: impl Into<String>,
    ) -> Transition<'_, DB> {
        let rowlock = self.rowlock.clone();
        rowlock.transition(self, table, id, from, to)
    }
}
