//! After-commit hooks: run after a successful commit only, and never part of it.
//!
//! A hook is a hint. It is kept with the `Done` until the commit is known to have happened. A rollback, a failure or a
//! crash drops the hook unrun, and nothing in the hook changes what was committed. What must happen belongs in the
//! transaction, as a write or as a next link.

use std::future::Future;

use super::{Done, Fail, Tx, fragile::Fragile};
use crate::root::Backend;

/// Code to run once the commit is known to have happened.
pub(crate) struct Hook(Fragile<Result<(), Fail>>);

impl Hook {
    fn new<F, E>(hook: F) -> Hook
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Fail>,
    {
        Hook(Fragile::new(Box::pin(async move { hook.await.map_err(Into::into) })))
    }

    /// Runs it; the error is for the log.
    pub(crate) async fn run(self) -> Result<(), String> {
        match self.0.caught().await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(fail)) => Err(fail.text),
            Err(panic) => Err(format!("panicked: {panic}")),
        }
    }
}

impl<DB: Backend, T> Tx<DB, T> {
    /// Runs this after the commit, if there is one: `tx.after_commit(async move { cache.forget(id).await })`. Dropped
    /// on rollback, failure and crash; an error or panic is logged and counted and changes nothing else. The hooks of a
    /// job run one after another, in the order they were given.
    pub fn after_commit<F, E>(&mut self, hook: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Fail>,
    {
        self.hooks.push(Hook::new(hook));
    }
}

impl<DB: Backend, T> Done<DB, T> {
    /// As [`Tx::after_commit`], also for a staged handler that writes nothing itself.
    pub fn after_commit<F, E>(mut self, hook: F) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Fail>,
    {
        self.hooks.push(Hook::new(hook));
        self
    }
}
