//! Staged handlers: prepare, make external calls, begin, settle. No transaction can be open across an effect.
//!
//! `prepare` borrows the context until it is committed and `effect` needs the context, so the borrow checker refuses
//! an effect inside a transaction. `begin` consumes the context, so no effect can follow it.

use std::{
    future::Future,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Attempt, Done, DroppedTx, Effect, EffectKey, Fail, Tx,
    journal::{CallJournal, Effects, Emit, Held, JobJournal},
    lock::Locks,
};
use crate::{
    error::{Doing, Error, Result},
    job::Limits,
    root::{Backend, Rowlock},
    store::{Isolation, Open, Opening, Timing, TxEnd},
};

/// What a staged attempt borrows from the engine: where its transaction's connection goes back to, and who holds it.
pub(crate) struct Outside<DB: Backend> {
    pub(crate) dropped: DroppedTx<DB>,
    /// Set when an effect is begun.
    pub(crate) called: Arc<AtomicBool>,
    pub(crate) timing: Timing,
    pub(crate) level: Isolation,
    /// What `Store::cut` needs, once there is a connection.
    pub(crate) holder: Arc<AtomicI64>,
    /// How long the whole handler may run.
    pub(crate) time_limit: Duration,
    pub(crate) emit: Emit,
    pub(crate) held: Held,
}

impl<DB: Backend> Outside<DB> {
    /// The effects of this attempt, recorded in this journal.
    pub(crate) fn effects(&self, journal: Arc<dyn CallJournal>, attempt: Attempt, limits: Limits) -> Effects {
        Effects {
            journal,
            attempt,
            limits,
            time_limit: self.time_limit,
            emit: self.emit.clone(),
            held: self.held.clone(),
            used: Mutex::default(),
            called: self.called.clone(),
        }
    }

    /// Opens the transaction in which the handler's writes and the attempt's end commit together.
    pub(crate) async fn begin<T>(self, rowlock: Rowlock<DB>, attempt: Attempt) -> Result<Tx<DB, T>> {
        let store = rowlock.store().clone();
        let open = Open::Handler(Opening {
            token: attempt.token,
            timing: self.timing,
            level: self.level,
        });
        let held = detached(async move { DB::begin(&store, open).await }).await?;
        self.holder.store(DB::holder(&held), Ordering::Relaxed);
        Ok(Tx::new(held, self.dropped, attempt, rowlock))
    }
}

/// The context of a staged handler.
///
/// `T` is what the handler may know about its attempt: an [`Attempt`] for a job, an `adopt::Attempt` for a row.
pub struct Staged<A, DB: Backend, T = Attempt> {
    state: Arc<A>,
    rowlock: Rowlock<DB>,
    attempt: T,
    outside: Outside<DB>,
    effects: Effects,
    pub(super) locks: Arc<Locks>,
}

crate::debug::debug_fields!([A, DB: Backend, T: std::fmt::Debug] Staged<A, DB, T>, "Staged", attempt);

impl<A, DB: Backend, T> Deref for Staged<A, DB, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.attempt
    }
}

impl<A, DB: Backend> Staged<A, DB> {
    /// The context of a job.
    pub(crate) fn of_job(state: Arc<A>, rowlock: Rowlock<DB>, attempt: Attempt, outside: Outside<DB>) -> Self {
        let journal = JobJournal {
            store: Arc::new(rowlock.store().clone()),
            lease: outside.timing.lease,
        };
        let effects = outside.effects(Arc::new(journal), attempt.clone(), *rowlock.limits());
        Staged::new(state, rowlock, attempt, outside, effects)
    }
}

impl<A, DB: Backend, T> Staged<A, DB, T> {
    pub(crate) fn new(
        state: Arc<A>,
        rowlock: Rowlock<DB>,
        attempt: T,
        outside: Outside<DB>,
        effects: Effects,
    ) -> Staged<A, DB, T> {
        Staged {
            state,
            rowlock,
            attempt,
            outside,
            effects,
            locks: Arc::default(),
        }
    }

    /// What the worker was given with `state`.
    pub fn state(&self) -> &A {
        &self.state
    }

    /// For enqueuing inside the transaction that `begin` gives.
    pub fn rowlock(&self) -> &Rowlock<DB> {
        &self.rowlock
    }

    /// Opens a read-only transaction, to read before external calls. It reads one snapshot. A write in it is an error,
    /// because the write would commit on every attempt, unfenced; write after [`Staged::begin`].
    ///
    /// # Errors
    /// The database could not be reached. Cancel-safe: a connection dropped half-way is closed.
    pub async fn prepare(&mut self) -> Result<Prepare<'_, DB>, Fail> {
        let store = self.rowlock.store().clone();
        let timing = self.outside.timing;
        let held = detached(async move { DB::begin(&store, Open::Read(timing)).await }).await?;
        Ok(Prepare {
            held: Some(held),
            rowlock: self.rowlock.clone(),
            id: self.effects.attempt.token.id,
            _context: PhantomData,
        })
    }

    /// Makes an external call under a key that is the same on every attempt of this job. Await the returned value.
    /// Where the defaults do not fit, first set the request, how long the call may take, and what to do when it is
    /// unknown whether the effect happened.
    ///
    /// The intent is committed before `f` runs and the reply after it. A later attempt gets the stored reply without a
    /// call. A call that ended in any other way leaves a doubt, unless its error says that the effect did not happen
    /// ([`NotDone`](crate::NotDone)). The next attempt then calls again with the same key, or does what
    /// [`Effect::park`] or [`Effect::ask`] say.
    ///
    /// Effects may run in parallel. A name may be used once per attempt; in a loop, name each by its index or item:
    /// `format!("mail-{i}")`.
    ///
    /// # Errors
    /// What `f` returns, as a [`Fail`]. The job becomes a case when the name is used twice or is not a plain name, when
    /// the request differs from the one before, when a reply cannot be stored or read back, and when a parked effect is
    /// in doubt. The attempt ends when its lease is lost.
    ///
    /// Cancel safety: dropped half-way, the call may have happened: its effect is in doubt. A reply that has arrived is
    /// stored nevertheless.
    pub fn effect<'a, R, F, Fut, E>(&'a self, name: &str, f: F) -> Effect<'a, R>
    where
        R: Serialize + DeserializeOwned + Send + 'a,
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = std::result::Result<R, E>> + Send + 'a,
        E: Into<Fail> + 'a,
    {
        Effect::new(&self.effects, name, f)
    }

    /// Opens the transaction in which the reply, the outcome and the next link commit together.
    ///
    /// # Errors
    /// The database could not be reached. Cancel-safe: a connection dropped half-way is closed.
    pub async fn begin(self) -> std::result::Result<Tx<DB, T>, Fail> {
        let tx = self.outside.begin(self.rowlock, self.effects.attempt).await?;
        self.locks.settling.store(true, Ordering::Relaxed);
        Ok(tx)
    }

    /// Done, with nothing to write: the engine settles it in a batch.
    pub fn done(self) -> Done<DB, T> {
        Done::without_writes(&self.effects.attempt, &self.rowlock)
    }
}

/// Runs on a separate task, so that a caller dropped half-way cannot leave a transaction half-opened. A connection that
/// no caller waits for any more is closed.
pub(super) async fn detached<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(_) => Err(sqlx::Error::WorkerCrashed).doing("begin"),
    }
}

/// A read-only transaction of a staged handler. Dropped without `commit`, its connection is closed.
pub struct Prepare<'a, DB: Backend> {
    held: Option<DB::Held>,
    pub(super) rowlock: Rowlock<DB>,
    pub(super) id: i64,
    _context: PhantomData<&'a mut ()>,
}

crate::debug::debug_fields!([DB: Backend] Prepare<'_, DB>, "Prepare", id);

impl<DB: Backend> Prepare<'_, DB> {
    /// Ends the read; after this the context can make external calls.
    ///
    /// # Errors
    /// The connection broke. Cancel-safe: a connection dropped half-way is closed.
    pub async fn commit(mut self) -> Result<()> {
        match self.held.take() {
            Some(held) => DB::end(self.rowlock.store(), held, TxEnd::Commit).await,
            None => Err(Error::Config("this read transaction has already ended".into())),
        }
    }
}

impl<DB: Backend> Deref for Prepare<'_, DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.held {
            Some(held) => held,
            None => unreachable!("a read gives its connection up only when consumed"),
        }
    }
}

impl<DB: Backend> DerefMut for Prepare<'_, DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match &mut self.held {
            Some(held) => held,
            None => unreachable!("a read gives its connection up only when consumed"),
        }
    }
}
