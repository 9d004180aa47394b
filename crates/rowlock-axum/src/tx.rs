//! The request's transaction: lent to the handler, and returned to the layer before the response is stored.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use rowlock::Backend;
use sqlx::Transaction;

/// The transaction, shared between the layer and the handler that has it.
pub(crate) struct Lent<DB: Backend>(Arc<Mutex<Option<Transaction<'static, DB>>>>);

impl<DB: Backend> Clone for Lent<DB> {
    fn clone(&self) -> Self {
        Lent(self.0.clone())
    }
}

impl<DB: Backend> Lent<DB> {
    pub(crate) fn new(tx: Transaction<'static, DB>) -> Self {
        Lent(Arc::new(Mutex::new(Some(tx))))
    }

    pub(crate) fn take(&self) -> Option<Transaction<'static, DB>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The transaction of a request under an idempotency key: what is written through it commits with the stored response,
/// or not at all. It derefs to sqlx's connection, and goes back to the layer when it is dropped. A handler that gives
/// it to a task which outlives the response is answered with 500, and nothing is kept.
pub struct IdempotentTx<DB: Backend> {
    // Taken only by drop.
    tx: Option<Transaction<'static, DB>>,
    home: Lent<DB>,
}

impl<DB: Backend> IdempotentTx<DB> {
    /// The transaction itself, for verbs that need proof of one: `rowlock.enqueue(tx.transaction(), job)`, `once`,
    /// guards and transitions. For queries use `&mut *tx`. It is borrowed, so only the layer can end it.
    pub fn transaction(&mut self) -> &mut Transaction<'static, DB> {
        match &mut self.tx {
            Some(tx) => tx,
            None => unreachable!("a transaction goes back only when it is dropped"),
        }
    }
}

impl<DB: Backend, S: Send + Sync> FromRequestParts<S> for IdempotentTx<DB> {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let home = parts.extensions.get::<Lent<DB>>().cloned();
        let tx = home.as_ref().and_then(Lent::take);
        match (home, tx) {
            (Some(home), Some(tx)) => Ok(IdempotentTx { tx: Some(tx), home }),
            (Some(_), None) => Err((
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request's transaction is already in use; extract it once per handler",
            )),
            (None, _) => Err((
                StatusCode::INTERNAL_SERVER_ERROR,
                "this request has no transaction; add the idempotent layer, and extract the transaction only where a \
                 key is required",
            )),
        }
    }
}

impl<DB: Backend> Drop for IdempotentTx<DB> {
    fn drop(&mut self) {
        *self.home.0.lock().unwrap_or_else(PoisonError::into_inner) = self.tx.take();
    }
}

impl<DB: Backend> Deref for IdempotentTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.tx {
            Some(tx) => tx,
            None => unreachable!("a transaction goes back only when it is dropped"),
        }
    }
}

impl<DB: Backend> DerefMut for IdempotentTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.transaction()
    }
}
