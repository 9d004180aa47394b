//! The storage contract. Two backends implement it: `store/postgres` and `store/sqlite`.
//!
//! The contract is four traits. [`Store`] is what workers and producers need, [`Inspect`] is what operators read, and
//! [`Operate`] is what operators do. These three use the store's own connections. They are object-safe, so that the
//! code that uses them is compiled once. [`InTx`] is what needs a typed connection: the caller's own, or the one that a
//! handler holds. The other files here are plain data: the parameters and answers of the methods.
//!
//! Every backend promises:
//! 1. A job is in exactly one of waiting, ready, lease and case, and only the statements here move it.
//! 2. A claimed job is written only with its token. A token that matches nothing is `false` or `LeaseLost`, not an
//!    error.
//! 3. Leases and due times are judged by the database's clock, or by [`Clock`] when a test has set one.
//! 4. A future that is dropped half-way never leaves a connection that is used again. A connection goes back to its
//!    pool only after an explicit, successful end.
//! 5. An error from `claim`, `settle` or `commit` does not mean that nothing happened. `own_leases` and `resolve` say
//!    what happened.

use std::{
    future::Future,
    ops::DerefMut,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sqlx::Database;
use uuid::Uuid;

use self::{
    action::{Action, Verdict},
    batch::{Parted, SettledShared},
    body_lock::{Slot, SlotAsk},
    breaker::{BreakerMove, ProbeReply},
    cases::{CaseQuery, ErrorSince},
    guard::GuardAsk,
    journal::EffectQuery,
    ledger::{Mine, Taken},
    setting::{SettingSort, SettingView},
    transition::Move,
    triggers::{Pulled, StandingQuery},
    views::JobQuery,
    waits::Stand,
};
pub use self::{
    claim::{ClaimAsk, ClaimReply, Cursor, Stretch},
    recover::{Cut, Expired, Judged, Since, Sweep, Swept},
    settle::{Resolved, SettledIn, Settlement, again},
    tx::{Isolation, Open, Opening, Timing, TxEnd},
    wakes::Wakes,
};
use crate::{
    breaker::{BreakerChange, BreakerView},
    case::{CaseErrorView, CaseView},
    effect::{Begun, CallEnd, EffectView, Intent, Noted},
    error::Result,
    job::Draft,
    key::Enqueued,
    lease::{Token, WorkerId},
    observe::{AttemptView, AuditFilter, AuditView, CheckView, Finding, JobView, Standing, Status, VerifyLimits},
    retention::Retention,
};

pub mod action;
pub mod batch;
pub mod body_lock;
pub mod breaker;
pub mod cases;
mod claim;
pub mod group;
pub mod guard;
pub mod journal;
pub mod keys;
pub mod ledger;
#[cfg(feature = "postgres")]
pub mod postgres;
mod recover;
pub mod rows;
pub mod schema;
pub mod setting;
mod settle;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod transition;
pub mod triggers;
mod tx;
pub mod verify;
pub mod views;
pub mod vitals;
pub mod waits;
mod wakes;

/// What a storage method returns.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The time that statements use instead of the database's own time. Unset except in tests.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Mutex<Option<Timestamp>>>);

impl Clock {
    pub fn now(&self) -> Option<Timestamp> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

/// What workers and producers need, on the store's own connections. Each method is one commit, unless it says
/// otherwise.
pub trait Store: Inspect + Operate + Send + Sync + 'static {
    /// Another store on the same database with its own connections, for use on another runtime. The connections are
    /// opened when they are first used.
    fn separate_connections(&self) -> Box<dyn Store>;

    /// Inserts, and sends the notification after the commit. Answers in input order. A key that contradicts an earlier
    /// request refuses the whole call.
    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>>;
    /// [`InTx::complete_in`] in a separate commit. The notification is sent after the commit.
    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>>;
    /// Makes untriggered jobs due if the uid matches, and returns these jobs.
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>>;

    /// Registers a worker. `names` are the numbers of the names that the worker serves. They are stored where the
    /// database cannot compute them, because operator commands in plain SQL use them.
    fn register<'a>(
        &'a self,
        worker: WorkerId,
        name: &'a str,
        lease: Duration,
        names: &'a [(i64, String)],
    ) -> Fut<'a, ()>;
    /// `false`: the worker has been declared dead.
    fn beat(&self, worker: WorkerId) -> Fut<'_, bool>;
    /// Removes a worker that shuts down gracefully.
    fn leave(&self, worker: WorkerId) -> Fut<'_, ()>;
    /// Whether the database has failed over since then. Ids and epochs may be assigned a second time after a failover,
    /// so nothing more is claimed under the id of such a worker.
    fn failed_over(&self, since: Since) -> bool {
        let _ = since;
        false
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply>;
    /// Claims as many jobs as may probe these breakers now. Each job probes all of the breakers. Never waits for a
    /// caller that is moving one of them. The names are sorted.
    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply>;
    /// Whether a job that must be claimed alone has been due for longer than this, in one of these ranges.
    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool>;
    /// The leases that this worker holds, as the database has them. Waits for the worker's claims in flight first, if
    /// there may be one.
    fn own_leases(&self, worker: WorkerId, in_flight: bool) -> Fut<'_, Vec<Token>>;
    /// Settles a batch; `false` where the lease was lost. Entries are independent: a lost lease does not affect the
    /// other entries. Notifications are sent after the commit. A next link whose key contradicts an earlier request
    /// refuses the whole batch with `KeyConflict`, so send settlements with keys alone.
    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>>;
    /// Waits for the transaction that held the token, then returns what happened. A lock timeout is an error: call
    /// again.
    fn resolve(&self, token: Token) -> Fut<'_, Resolved>;
    /// Ends the connection of a handler, which [`InTx::holder`] named, so that the connection keeps no row lock. There
    /// is nothing to end where connections are in-process.
    fn cut(&self, holder: i64) -> Fut<'_, Cut>;

    /// Recovery, first part: declares workers dead.
    fn mark_dead(&self) -> Fut<'_, Judged>;
    /// Recovery, second part: ends up to `max` leases of dead workers.
    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>>;
    /// Recovery, third part: forgets dead workers that hold nothing. Returns how many dead workers still hold
    /// something.
    fn forget_dead(&self) -> Fut<'_, i64>;
    /// One round of a sweep. With nothing to do, it reads a few index entries.
    fn sweep(&self, what: Sweep, max: i32) -> Fut<'_, waits::Swept>;
    /// Creates partitions ahead of time and removes what this retention no longer keeps, in small batches. Each batch
    /// is a commit.
    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept>;

    /// Takes one of a key's slots for a token, or returns the slot that the token already has. Or frees a slot.
    fn body_lock<'a>(&'a self, token: Token, key: &'a str, ask: SlotAsk) -> Fut<'a, Slot>;
    /// Commits an intent, unless what is stored about the effect forbids the call.
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun>;
    /// Commits how a call ended.
    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted>;
    /// Declares a breaker, or moves the breaker under its lock if its version is still the one that was read. Returns
    /// the new state if this call moved the breaker.
    fn move_breaker<'a>(&'a self, name: &'a str, step: BreakerMove<'a>) -> Fut<'a, Option<BreakerView>>;

    /// Notifies every process of new work in these queues. Notifications are coalesced and may be lost.
    fn wake(&self, queues: &[i64]);
    /// Starts to listen for notifications.
    fn wakes(&self) -> Fut<'_, Wakes>;
}

/// What operators read. Nothing here writes.
pub trait Inspect: Send + Sync {
    fn schema(&self) -> Fut<'_, schema::SchemaFound>;
    fn status(&self) -> Fut<'_, Status>;
    fn jobs<'a>(&'a self, which: JobQuery<'a>) -> Fut<'a, Vec<JobView>>;
    /// A job's ended attempts, oldest first.
    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>>;
    /// The place of a job, for a caller that waits for its end. With `chain`, every link of its chain in order. Empty
    /// when there is no such job.
    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>>;
    /// The place of each of these jobs that exists; or the jobs in ready that no worker has claimed.
    fn standing<'a>(&'a self, which: StandingQuery<'a>) -> Fut<'a, Vec<Standing>>;
    fn cases(&self, which: CaseQuery) -> Fut<'_, Vec<CaseView>>;
    /// The errors that open cases have, most cases first.
    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>>;
    /// What happened to an error after that time.
    fn error_since<'a>(&'a self, error: i64, jobs: &'a [i64], after: Timestamp) -> Fut<'a, ErrorSince>;
    fn effects<'a>(&'a self, which: EffectQuery<'a>) -> Fut<'a, Vec<EffectView>>;
    /// The settings of one sort, by name.
    fn settings(&self, of: SettingSort) -> Fut<'_, Vec<SettingView>>;
    /// The breakers with these names, or all of them, by name.
    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>>;
    /// The last changes of a breaker, newest first.
    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>>;
    /// Operator commands, newest first.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>>;
    /// Every invariant in its order, in one transaction. A statement that exceeds its time limit is stopped without
    /// ending the transaction.
    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>>;
    /// What the database reports about its health. Its settings are compared with the shortest lease of a live worker.
    fn vitals(&self, lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>>;
}

/// What operators do.
pub trait Operate: Send + Sync {
    /// Applies what the schema lacks, under a lock and in one transaction. Returns the labels of the applied steps.
    /// `more` are migrations after this binary's own; only tests have any.
    fn migrate<'a>(&'a self, more: &'a [schema::Migration]) -> Fut<'a, Vec<String>>;
    /// One operator command, in one commit with its audit entry. Notifications are sent after the commit.
    fn act<'a>(&'a self, action: Action<'a>, actor: &'a str) -> Fut<'a, Verdict>;
}

/// What needs a typed connection: the caller's own, or one that a handler holds.
///
/// A guard's lock is held until the transaction ends. A read after the lock was taken sees every commit of the earlier
/// holders.
pub trait InTx: Database {
    /// The backend's store.
    type Store: Store + Clone;
    /// A connection that a handler holds, inside a transaction. If it is dropped, the connection closes and the
    /// database rolls back.
    type Held: DerefMut<Target = Self::Connection> + Send + 'static;

    /// The statement that begins a transaction that will write.
    const BEGIN: &'static str;
    /// Whether a handler's transaction makes all other writers wait.
    const EXCLUSIVE: bool;

    /// The number that [`Store::cut`] needs to end this connection from another connection; never 0.
    fn holder(held: &Self::Held) -> i64;
    /// Opens a transaction with everything that it needs.
    fn begin(store: &Self::Store, what: Open) -> Fut<'_, Self::Held>;
    /// Keeps or rolls back what was written since the savepoint. With `more`, there is a new savepoint afterwards.
    /// Otherwise the seal of a shared transaction is broken, and no user code may run any more.
    fn part<'a>(store: &'a Self::Store, held: &'a mut Self::Held, keep: bool, more: bool) -> Fut<'a, Parted>;
    /// Writes the outcome, the next links and the compensations as the last statements of the transaction.
    fn settle_in<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        settlement: &'a Settlement,
    ) -> Fut<'a, SettledIn>;
    /// [`InTx::settle_in`] for all jobs of a shared transaction.
    fn settle_shared<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared>;
    /// Settles, commits, and opens the transaction of the job that `next` picks, all in one string. `None` where this
    /// is not possible, or where nothing was picked. After `Applied`, the held connection belongs to the next job;
    /// otherwise it is of no more use. An error leaves the outcome unknown. Unless the server sent the error, the
    /// string may even still be running. Use [`Store::cut`] to make sure that the connection is gone, then call
    /// `resolve`.
    fn pass_on<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        settlement: &'a Settlement,
        next: &mut dyn FnMut() -> Option<Opening>,
    ) -> Option<Fut<'a, SettledIn>> {
        let _ = (store, held, settlement, next);
        None
    }
    /// Commits or rolls back, and returns the connection to its pool where that is possible. All locks are released
    /// when this returns. An error of a commit leaves the outcome unknown: call `resolve`.
    fn end(store: &Self::Store, held: Self::Held, how: TxEnd) -> Fut<'_, ()>;

    /// Inserts in the caller's transaction. The notification is sent if the transaction commits, and dropped if it
    /// rolls back. After a `KeyConflict` the transaction is as it was before the call.
    fn enqueue_in<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        drafts: &'a [Draft],
    ) -> Fut<'a, Vec<Enqueued>>;
    /// Completes a name in the transaction that is open. Returns how many waiting jobs moved to ready, or `None` when
    /// the name was completed before. The notification is sent with the commit.
    fn complete_in<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        name: &'a str,
        answer: Option<&'a str>,
    ) -> Fut<'a, Option<i64>>;
    /// The JSON answer of the completed name that this job waits for.
    fn answer_in<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, id: i64) -> Fut<'a, Option<String>>;
    /// Locks keys, or reads or raises a key's counter. Returns the current counter; `None` for a lock, or when the
    /// counter had changed.
    fn guard<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, ask: GuardAsk<'a>) -> Fut<'a, Option<i64>>;
    /// Moves a row of the user's own table; returns how many rows moved. The move has been checked.
    fn transition<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, step: &'a Move) -> Fut<'a, u64>;

    /// Takes a key of the ledger, or returns what is stored under the key. Waits for an open transaction that has taken
    /// the key.
    fn once_take<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, ask: &'a ledger::Ask) -> Fut<'a, Taken>;
    /// Stores the answer with the key; `false` when the entry does not belong to this transaction.
    fn once_store<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        key: &'a str,
        mine: Mine,
        answer: &'a str,
    ) -> Fut<'a, bool>;
    /// What is stored under a key, without taking the key and without waiting.
    fn once_read<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        key: &'a str,
    ) -> Fut<'a, Option<ledger::Entry>>;
    /// Makes a savepoint that sqlx does not count, or rolls back to it. A transaction that is dropped afterwards still
    /// rolls back as a whole. The number distinguishes the savepoint from others in the same transaction.
    fn once_savepoint(conn: &mut Self::Connection, no: u64, back: bool) -> Fut<'_, ()>;
}

/// Queries for a single row, built on the list methods.
impl dyn Store {
    pub async fn job(&self, id: i64) -> Result<Option<JobView>> {
        Ok(self.jobs(JobQuery::One(id)).await?.pop())
    }

    pub async fn case(&self, id: i64) -> Result<Option<CaseView>> {
        Ok(self.cases(CaseQuery::One(id)).await?.pop())
    }

    pub async fn effect(&self, no: i64) -> Result<Option<EffectView>> {
        Ok(self.effects(EffectQuery::One(no)).await?.pop())
    }
}
