//! The storage contract. Two backends implement it: `store/postgres` and `store/sqlite`.
//!
//! It is four traits. [`Store`] is what workers and producers need, [`Inspect`] what people read and [`Operate`] what
//! people do, all on connections of the store's own. These three are object-safe, so that what uses them is compiled once.
//! [`InTx`] is what needs a typed connection: the caller's own, or the one that a handler holds. The other files here are
//! plain data: what each method takes and answers.
//!
//! What every backend promises, whatever its database:
//! 1. A job is in exactly one of waiting, ready, lease and case, and only the statements here move it.
//! 2. No write to a claimed job without its token. A token that matches nothing is `false` or `LeaseLost`, not an error.
//! 3. Leases and due times are judged by the database's clock, or by [`Clock`] when a test has set one.
//! 4. A future dropped half-way never leaves a connection that is used again: a connection goes back to its
//!    pool only by an explicit, successful end.
//! 5. An error from `claim`, `settle` or `commit` does not say that nothing happened. `own_leases` and `resolve` tell
//!    what did.

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

/// What a storage verb returns.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The time that statements are given instead of the database's own. Unset except in tests.
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

/// What workers and producers need, on connections of the store's own. Each method is a commit, unless it says otherwise.
pub trait Store: Inspect + Operate + Send + Sync + 'static {
    /// Another store on the same database with its own connections, for use on another runtime. They are opened when first
    /// used.
    fn separate_connections(&self) -> Box<dyn Store>;

    /// Inserts, and sends the wake after the commit; answers in input order. A key that contradicts an earlier request
    /// refuses all of them.
    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>>;
    /// [`InTx::complete_in`] in a commit of its own; the wake is sent after it.
    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>>;
    /// Makes jobs due that stand untriggered, where the uid is theirs; says which they are.
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>>;

    /// Enters a worker. `names` are the numbers of the names that it serves; they are noted where the database cannot
    /// work them out, because verbs of plain SQL use them.
    fn register<'a>(
        &'a self,
        worker: WorkerId,
        name: &'a str,
        lease: Duration,
        names: &'a [(i64, String)],
    ) -> Fut<'a, ()>;
    /// `false`: declared dead.
    fn beat(&self, worker: WorkerId) -> Fut<'_, bool>;
    /// An orderly goodbye.
    fn leave(&self, worker: WorkerId) -> Fut<'_, ()>;
    /// Whether the database has failed over since. Ids and epochs may then be given out a second time, so nothing more is
    /// claimed under the id of such a worker.
    fn failed_over(&self, since: Since) -> bool {
        let _ = since;
        false
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply>;
    /// Claims as many jobs as may try these breakers now, all of them with one job; never waits for who moves one. The
    /// names are in order.
    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply>;
    /// Whether a job that must be claimed alone has been due for longer than this, in one of these lanes.
    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool>;
    /// What the database says this worker holds, after waiting for its claims in flight where there may be one.
    fn own_leases(&self, worker: WorkerId, in_flight: bool) -> Fut<'_, Vec<Token>>;
    /// Settles a batch; `false` where the lease was lost. Entries do not share their fate: the lost ones leave the others
    /// standing. Wakes are sent after the commit. A next link whose key contradicts an earlier request refuses the whole
    /// batch with `KeyConflict`: send those with keys alone.
    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>>;
    /// Waits for the backend that held the token, then says what happened. A lock timeout is an error: ask again.
    fn resolve(&self, token: Token) -> Fut<'_, Resolved>;
    /// Ends the connection of a handler, by what [`InTx::holder`] said, so that it keeps no row lock. Where connections are
    /// in-process there is none to end.
    fn cut(&self, holder: i64) -> Fut<'_, Cut>;

    /// Recovery, first part: declares workers dead.
    fn mark_dead(&self) -> Fut<'_, Judged>;
    /// Recovery, second part: ends up to `max` leases of dead workers.
    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>>;
    /// Recovery, third part: forgets dead workers that hold nothing; how many still hold something.
    fn forget_dead(&self) -> Fut<'_, i64>;
    /// One round over what does not move by itself. With nothing to do it costs a look at a few index entries.
    fn sweep(&self, what: Sweep, max: i32) -> Fut<'_, waits::Swept>;
    /// Makes partitions ahead, and removes what is over by this retention, in small batches, each a commit.
    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept>;

    /// Takes one of a key's slots for a token, or says again which one the token has; or frees it.
    fn body_lock<'a>(&'a self, token: Token, key: &'a str, ask: SlotAsk) -> Fut<'a, Slot>;
    /// Commits an intent, unless what is known of the effect speaks against a call.
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun>;
    /// Commits how a call ended.
    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted>;
    /// Declares a breaker, or moves it under its lock from the version that was read there; as it stands then, if that
    /// moved it.
    fn move_breaker<'a>(&'a self, name: &'a str, step: BreakerMove<'a>) -> Fut<'a, Option<BreakerView>>;

    /// Hints at new work in these queues to every process; coalesced, may be lost.
    fn wake(&self, queues: &[i64]);
    /// Starts to hear hints.
    fn wakes(&self) -> Fut<'_, Wakes>;
}

/// What people read. Nothing here writes.
pub trait Inspect: Send + Sync {
    fn schema(&self) -> Fut<'_, schema::SchemaFound>;
    fn status(&self) -> Fut<'_, Status>;
    fn jobs<'a>(&'a self, which: JobQuery<'a>) -> Fut<'a, Vec<JobView>>;
    /// A job's ended attempts, oldest first.
    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>>;
    /// Where a job stands, for somebody who waits for its end; with `chain`, every link of its chain in order. Empty when
    /// there is no such job.
    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>>;
    /// Where each stands that there is; or those in ready that nobody has taken.
    fn standing<'a>(&'a self, which: StandingQuery<'a>) -> Fut<'a, Vec<Standing>>;
    fn cases(&self, which: CaseQuery) -> Fut<'_, Vec<CaseView>>;
    /// The errors that open cases have, most cases first.
    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>>;
    /// What happened to an error after that time.
    fn error_since<'a>(&'a self, error: i64, jobs: &'a [i64], after: Timestamp) -> Fut<'a, ErrorSince>;
    fn effects<'a>(&'a self, which: EffectQuery<'a>) -> Fut<'a, Vec<EffectView>>;
    /// What people have set of one sort, by name.
    fn settings(&self, of: SettingSort) -> Fut<'_, Vec<SettingView>>;
    /// Those with these names, or all of them, by name.
    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>>;
    /// The last changes of one, newest first.
    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>>;
    /// What people did, newest first.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>>;
    /// Every invariant in its order, in one transaction. A statement that runs out of time is stopped without an end to
    /// the transaction.
    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>>;
    /// What the database says of its own health. Its settings are held against the shortest lease of a live worker.
    fn vitals(&self, lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>>;
}

/// What people do.
pub trait Operate: Send + Sync {
    /// Applies what the schema lacks, under a lock and in one transaction; returns the labels of what it applied. `more` are
    /// migrations behind this binary's own, which only tests have.
    fn migrate<'a>(&'a self, more: &'a [schema::Migration]) -> Fut<'a, Vec<String>>;
    /// One action, in one commit with its note in the audit. Wakes are sent after it.
    fn act<'a>(&'a self, action: Action<'a>, actor: &'a str) -> Fut<'a, Verdict>;
}

/// What needs a typed connection: the caller's own, or one that a handler holds.
///
/// A lock of a guard is held until the transaction ends, and what is read after it was taken is newer than every commit
/// of those who held it before.
pub trait InTx: Database {
    /// The backend's store.
    type Store: Store + Clone;
    /// A connection that a handler holds, inside a transaction. Dropped, it closes and the database rolls back.
    type Held: DerefMut<Target = Self::Connection> + Send + 'static;

    /// What begins a transaction that is going to write.
    const BEGIN: &'static str;
    /// Whether a transaction of a handler keeps all other writers waiting.
    const EXCLUSIVE: bool;

    /// What [`Store::cut`] needs to end this connection from outside; never 0.
    fn holder(held: &Self::Held) -> i64;
    /// Opens a transaction, with all that it needs, in one go.
    fn begin(store: &Self::Store, what: Open) -> Fut<'_, Self::Held>;
    /// Keeps what was written since the savepoint, or takes it back. Then there is a savepoint for one `more`, or a shared
    /// transaction's seal is broken and no user code may run any more.
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
    /// Settles, commits, and opens the transaction of the job that `next` picks, all in one string; `None` where that
    /// cannot be done, or nothing was picked. Once `Applied`, what is held is the next job's; otherwise it is of no more use.
    /// An error leaves the outcome unknown, and unless the server sent it, even whether the string is over: see that the
    /// connection is gone by [`Store::cut`], then `resolve` it.
    fn pass_on<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        settlement: &'a Settlement,
        next: &mut dyn FnMut() -> Option<Opening>,
    ) -> Option<Fut<'a, SettledIn>> {
        let _ = (store, held, settlement, next);
        None
    }
    /// Commits or rolls back, and gives the connection back where that is possible. Locks are gone when this returns. An
    /// error of a commit leaves the outcome unknown: `resolve` it.
    fn end(store: &Self::Store, held: Self::Held, how: TxEnd) -> Fut<'_, ()>;

    /// Inserts in the caller's transaction; the wake travels with its commit and vanishes with its rollback. After a
    /// `KeyConflict` the transaction is as it was.
    fn enqueue_in<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        drafts: &'a [Draft],
    ) -> Fut<'a, Vec<Enqueued>>;
    /// Completes a name in whatever transaction is open: how many waiting jobs it moved to ready, or `None` when the
    /// name was completed before. The wake travels with the commit.
    fn complete_in<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        name: &'a str,
        answer: Option<&'a str>,
    ) -> Fut<'a, Option<i64>>;
    /// The JSON that the name was completed with that this job waits for.
    fn answer_in<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, id: i64) -> Fut<'a, Option<String>>;
    /// Locks keys, or reads or raises a key's counter. The counter as it is now; `None` when it had moved on, or for a lock.
    fn guard<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, ask: GuardAsk<'a>) -> Fut<'a, Option<i64>>;
    /// Moves a row of the user's own table; how many rows moved. The move has been checked.
    fn transition<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, step: &'a Move) -> Fut<'a, u64>;

    /// Takes a key of the ledger, or says what is stored under it. Waits for an open transaction that has taken the key.
    fn once_take<'a>(store: &'a Self::Store, conn: &'a mut Self::Connection, ask: &'a ledger::Ask) -> Fut<'a, Taken>;
    /// Stores the answer beside the key; `false` when the entry is not this transaction's.
    fn once_store<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        key: &'a str,
        mine: Mine,
        answer: &'a str,
    ) -> Fut<'a, bool>;
    /// What is stored under a key, without taking it or waiting for anyone.
    fn once_read<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        key: &'a str,
    ) -> Fut<'a, Option<ledger::Entry>>;
    /// Makes a savepoint that sqlx does not count, or goes back to it: a transaction that is dropped then still rolls back as
    /// a whole. The number tells it from others in the same transaction.
    fn once_savepoint(conn: &mut Self::Connection, no: u64, back: bool) -> Fut<'_, ()>;
}

/// Single nouns, for callers that ask for one.
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
