//! The storage contract. Two rooms implement it: `store/postgres` and `store/sqlite`.
//!
//! [`Store`] is what the engine asks for on connections of its own; it is object-safe, so the worker and the
//! operator's doors are compiled once. [`Room`] is what needs the caller's or the handler's own connection, typed.
//!
//! What every room promises, whatever its database:
//! 1. A job is in exactly one of waiting, ready, lease and case, and only the statements here move it.
//! 2. No write to a claimed job without its token. A token that matches nothing is `false` or `LeaseLost`, not an error.
//! 3. Leases and due times are judged by the database's clock, or by [`Clock`] when a test has set one.
//! 4. A future dropped half-way never leaves a connection that is used again: a connection goes back to its
//!    pool only by an explicit, successful end.
//! 5. An error from `claim`, `settle` or `commit` does not say that nothing happened. `own_leases`, and `resolve`,
//!    tell what did.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sqlx::Database;

use crate::{
    case::CaseView,
    error::Result,
    job::Draft,
    key::Enqueued,
    lease::{Claimed, Token, WorkerId},
    observe::{AttemptView, JobFilter, JobView, Status},
    retention::Retention,
    state::{Ended, State},
};

pub mod batch;
pub mod body_lock;
pub mod breaker;
pub mod cases;
pub mod group;
pub mod guard;
pub mod journal;
pub mod keys;
pub mod ledger;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod rows;
pub mod schema;
pub mod setting;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod transition;
pub mod triggers;
pub mod verbs;
pub mod verify;
pub mod vitals;
pub mod waits;

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

/// Time limits on connections, derived from the lease so that a frozen holder keeps no lock past it.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub lease: Duration,
    /// Idle-in-transaction and lock timeout; at most half the lease.
    pub lock: Duration,
}

impl Timing {
    pub fn of_lease(lease: Duration) -> Timing {
        Timing { lease, lock: lease / 2 }
    }
}

/// The isolation level of a handler's transaction. SQLite has one level, serializable, whatever is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed before it. Guards need this.
    #[default]
    ReadCommitted,
    /// Every statement sees what was committed before the first; a write that met a newer row fails the attempt, which
    /// is tried again soon.
    RepeatableRead,
    /// As if handlers at this level ran one after the other; those that did not are tried again soon.
    Serializable,
}

impl Isolation {
    /// As PostgreSQL says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

/// Where a stretch of the claim index starts: the smallest key of the last claim there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub due_at: Timestamp,
    pub id: i64,
}

impl Cursor {
    /// From the beginning: a full sweep.
    pub const START: Cursor = Cursor {
        due_at: Timestamp::UNIX_EPOCH,
        id: 0,
    };
}

/// One contiguous range of the claim index.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub queue_no: i64,
    pub kind_no: i64,
    pub priority: i16,
    pub from: Cursor,
}

/// What a worker asks for in one claim.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    pub worker: WorkerId,
    /// Queue number and how many jobs of it at most.
    pub queues: Vec<(i64, i32)>,
    /// In the order they are to be served; priorities must come in rising order.
    pub stretches: Vec<Stretch>,
    /// Take only jobs whose last worker was lost (with a limit of one, and nothing else in hand), or only others.
    pub alone: bool,
    /// Kind numbers with each breaker they are bound to: nothing of them is taken unless all of those are closed.
    pub bound: Vec<(i64, String)>,
}

impl ClaimAsk {
    /// The same for each queue alone.
    pub fn parts(&self) -> impl Iterator<Item = ClaimAsk> + '_ {
        self.queues.iter().map(|(queue_no, places)| ClaimAsk {
            worker: self.worker,
            queues: vec![(*queue_no, *places)],
            stretches: self
                .stretches
                .iter()
                .filter(|p| p.queue_no == *queue_no)
                .copied()
                .collect(),
            alone: self.alone,
            bound: self.bound.clone(),
        })
    }

    /// The same with at most so many jobs of each queue.
    pub fn up_to(mut self, places: i32) -> ClaimAsk {
        for (_, most) in &mut self.queues {
            *most = places.min(*most);
        }
        self
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub enum ClaimReply {
    /// At most as many as asked for, in no promised order.
    Jobs(Vec<Claimed>),
    /// The worker has been declared dead; nothing was taken.
    Dead,
    /// As [`Store::moved`] says; nothing was taken.
    Moved,
}

/// How one attempt ended and what follows from it; made by `settle.rs`, applied by SQL.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub token: Token,
    pub ended: Ended,
    /// What `state::after` says.
    pub to: State,
    /// How far ahead the due time lies, for a job that goes back to ready.
    pub delay: Duration,
    /// Free of NUL and bounded in length.
    pub error: Option<String>,
    /// JSON.
    pub result: Option<String>,
    /// Jobs to enqueue in the same commit, links of the chain included.
    pub next: Vec<Draft>,
    /// The group whose turn passes on in the same commit.
    pub turn: Option<i64>,
}

/// The jobs among these that have next links, and may have been done before: nobody is done in the first epoch twice.
pub fn again<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Vec<i64> {
    settlements
        .filter(|s| !s.next.is_empty() && s.token.epoch > 1)
        .map(|s| s.token.id)
        .collect()
}

/// The answer to a settle inside a handler's transaction.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum SettledIn {
    /// Written; it holds once the transaction commits. Queues that got new work are named by number.
    Applied { woken: Vec<i64> },
    /// The token matched nothing; the whole transaction must roll back.
    LeaseLost,
    /// This is not the transaction the engine opened: user code ended that one.
    NotOurs,
}

/// What became of a commit whose reply was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It committed, with this outcome.
    Ended(Ended),
    /// It did not commit, and the lease still stands.
    StillLeased,
    /// It did not commit, and the lease is gone.
    Lost,
}

/// What a look at the workers' beats found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Declared dead just now.
    pub dead: Vec<WorkerId>,
    /// Somebody is dead, by whomever declared.
    pub any: bool,
    /// When the next who is suspected may be declared dead, counted from now.
    pub look_in: Option<Duration>,
}

/// A lease that recovery ended.
#[derive(Clone, Debug)]
pub struct Expired {
    pub token: Token,
    pub attempt: i32,
    /// Out of attempts: it became a case.
    pub retired: bool,
    pub kind: String,
    pub queue_no: i64,
    pub queue: String,
    /// Since its worker's last beat.
    pub silent: Duration,
    /// Its group, where that goes on without it.
    pub group_no: Option<i64>,
}

/// What a round of upkeep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bodies of finished jobs whose history was over.
    pub jobs: u64,
    /// Cases that nobody decided on in time, with their bodies.
    pub cases: u64,
    /// Enqueue keys whose hold was over.
    pub keys: u64,
    /// Entries of the ledger whose hold was over.
    pub ledger: u64,
}

/// The engine's verbs, on connections of the store's own.
pub trait Store:
    body_lock::BodyLocks
    + breaker::Breakers
    + group::Groups
    + journal::Journal
    + setting::Settings
    + triggers::Triggers
    + verbs::Verbs
    + cases::Cases
    + verify::Verify
    + vitals::Vitals
    + waits::Waits
    + Send
    + Sync
    + 'static
{
    /// The clock that tests may set; shared by every copy of the store.
    fn clock(&self) -> &Clock;

    /// Another store on the same database with connections of its own, for use on another runtime. They are opened
    /// when first used.
    fn twin(&self) -> Box<dyn Store>;

    fn schema(&self) -> Fut<'_, schema::SchemaFound>;
    /// Applies what the schema lacks, under a lock and in one transaction; returns the labels of what it applied. `more` are
    /// migrations behind this binary's own, which only tests have.
    fn migrate<'a>(&'a self, more: &'a [schema::Migration]) -> Fut<'a, Vec<String>>;

    /// Inserts in a commit of its own and sends the wake after it; answers in input order. A key that contradicts an
    /// earlier request refuses all of them.
    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>>;

    fn register<'a>(&'a self, worker: WorkerId, name: &'a str, lease: Duration) -> Fut<'a, ()>;
    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply>;
    /// Settles a batch in one commit; `false` where the lease was lost. Entries do not share their fate: the lost
    /// ones leave the others standing. Wakes are sent after the commit. A next link whose key contradicts an earlier
    /// request refuses the whole batch with `KeyConflict`: send those with keys alone.
    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>>;
    /// Waits for the backend that held the token, then says what happened. A lock timeout is an error: ask again.
    fn resolve(&self, token: Token) -> Fut<'_, Resolved>;

    /// `false`: declared dead.
    fn beat(&self, worker: WorkerId) -> Fut<'_, bool>;
    /// Whether the database has failed over since this worker was registered. Ids and epochs may then be given out a second
    /// time, so nothing more is claimed under its id.
    fn moved(&self, worker: WorkerId) -> bool {
        let _ = worker;
        false
    }
    /// Recovery, first part: declares workers dead.
    fn mark_dead(&self) -> Fut<'_, Judged>;
    /// Recovery, second part: ends up to `max` leases of dead workers.
    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>>;
    /// Recovery, third part: forgets dead workers that hold nothing; how many still hold something.
    fn forget_dead(&self) -> Fut<'_, i64>;
    /// An orderly goodbye.
    fn leave(&self, worker: WorkerId) -> Fut<'_, ()>;
    /// What the database says this worker holds, after waiting for its claims in flight where there may be one.
    fn own_leases(&self, worker: WorkerId, in_flight: bool) -> Fut<'_, Vec<Token>>;
    /// Whether a job that must be claimed alone has been due for longer than this, in one of these lanes.
    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool>;
    /// Ends the backend of a hung handler, by what [`Room::holder`] said, so that it keeps no row lock; where connections
    /// are in-process there is none to end. `true` when user code had ended the transaction, so that what it wrote may
    /// stand.
    fn cut(&self, holder: i64) -> Fut<'_, bool>;
    /// Ends that connection like [`Store::cut`], and says whether it is gone: what was sent on it has run or never will.
    fn ended(&self, holder: i64) -> Fut<'_, bool> {
        let _ = holder;
        Box::pin(async { Ok(true) })
    }

    /// Whether a connection, by what [`Room::holder`] said, is to a server that was left in a failover.
    fn left(&self, holder: i64) -> bool {
        let _ = holder;
        false
    }

    /// Hints at new work in these queues to every process; coalesced, may be lost.
    fn wake(&self, queues: &[i64]);
    /// Starts to hear hints.
    fn wakes(&self) -> Fut<'_, Box<dyn Wakes>>;

    /// Makes partitions ahead, and removes what is over by this retention, in small batches.
    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept>;

    fn status(&self) -> Fut<'_, Status>;
    fn jobs<'a>(&'a self, filter: &'a JobFilter) -> Fut<'a, Vec<JobView>>;
    fn job(&self, id: i64) -> Fut<'_, Option<JobView>>;
    /// A job's ended attempts, oldest first.
    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>>;
    fn cases(&self, error: Option<i64>, max: i64) -> Fut<'_, Vec<CaseView>>;
    fn case(&self, id: i64) -> Fut<'_, Option<CaseView>>;
    /// Every link of the chain that this job belongs to, in order of position and id.
    fn chain(&self, id: i64) -> Fut<'_, Vec<JobView>>;

    /// Puts a case back to ready, or to waiting while what it waits for is not completed; `false` when the job is no case.
    fn reopen<'a>(&'a self, id: i64, actor: &'a str) -> Fut<'a, bool>;
}

/// Hints that arrive. Dropping it stops listening.
pub trait Wakes: Send {
    /// The next queue with new work; `None` for "some queue". An error means that hints may have been missed: poll,
    /// and listen anew. Cancel-safe.
    fn next(&mut self) -> Fut<'_, Option<i64>>;
}

/// What needs a typed connection: the caller's own, or one that a handler holds.
pub trait Room: Database {
    /// The room's store.
    type Store: Store
        + guard::Guarding<Self::Connection>
        + ledger::Ledger<Self::Connection>
        + waits::Completing<Self::Connection>
        + Clone;
    /// A connection in a handler's hands, inside a transaction. Dropped, it closes and the database rolls back.
    type Held: Send + 'static;

    /// How long a handler may hold a transaction, where a transaction shuts others out.
    fn cap(timing: Timing) -> Option<Duration> {
        let _ = timing;
        None
    }

    fn conn_ref(held: &Self::Held) -> &Self::Connection;
    fn conn(held: &mut Self::Held) -> &mut Self::Connection;
    /// What `Store::cut` needs to end this connection from outside; never 0.
    fn holder(held: &Self::Held) -> i64;

    /// Inserts in the caller's transaction; the wake travels with its commit and vanishes with its rollback. After a
    /// `KeyConflict` the transaction is as it was.
    fn enqueue_in<'a>(
        store: &'a Self::Store,
        conn: &'a mut Self::Connection,
        drafts: &'a [Draft],
    ) -> Fut<'a, Vec<Enqueued>>;

    /// Opens a handler's transaction: begin, local time limits, the marker and the savepoint in one go.
    fn begin<'a>(store: &'a Self::Store, token: &'a Token, timing: Timing, level: Isolation) -> Fut<'a, Self::Held>;
    /// Opens a read-only transaction.
    fn begin_read<'a>(store: &'a Self::Store, timing: Timing) -> Fut<'a, Self::Held>;
    /// Ends a read-only transaction and gives the connection back.
    fn end_read(store: &Self::Store, held: Self::Held) -> Fut<'_, ()>;
    /// Back to the savepoint: what the handler wrote is gone, the transaction can still record a failure. `false` when
    /// user code ended the transaction, so that what it wrote may stand.
    fn back<'a>(store: &'a Self::Store, held: &'a mut Self::Held) -> Fut<'a, bool>;
    /// Writes the outcome, the next links and the compensations as the last statements of the transaction.
    fn settle_in<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        settlement: &'a Settlement,
    ) -> Fut<'a, SettledIn>;
    /// Commits and gives the connection back. An error leaves the outcome unknown: `resolve` it.
    fn commit(store: &Self::Store, held: Self::Held) -> Fut<'_, ()>;

    /// Whether [`Room::pass_on`] can be expected to do it.
    fn passes_on(store: &Self::Store, held: &Self::Held, settlement: &Settlement) -> bool {
        let _ = (store, held, settlement);
        false
    }

    /// Settles, commits, and opens the transaction of the job that follows, all in one string; `None` where that cannot be
    /// done after all. Once `Applied`, what is held is the next job's; otherwise it is of no more use. An error leaves the
    /// outcome unknown, and unless the server sent it, even whether the string is over: see that the connection has
    /// [`Store::ended`], then `resolve` it.
    fn pass_on<'a>(
        store: &'a Self::Store,
        held: &'a mut Self::Held,
        settlement: &'a Settlement,
        next: Opening,
    ) -> Option<Fut<'a, SettledIn>> {
        let _ = (store, held, settlement, next);
        None
    }
}

/// Which handler's transaction is to be opened, and how.
#[derive(Clone, Copy)]
pub struct Opening {
    pub token: Token,
    pub timing: Timing,
    pub level: Isolation,
}
