//! The PostgreSQL room.
//!
//! Engine verbs run on a few connections of their own, with planner settings fit for the queue's statements; handlers
//! get plain connections. Each verb is bounded in time: past the limit its future is dropped, and with it the
//! connection, so a silent network cannot hold a worker for ever.

pub mod adopt;
mod batch;
mod body_lock;
mod breaker;
mod by_key;
mod cases;
mod claim;
mod conns;
mod enqueue;
mod group;
mod guard;
mod hosts;
mod journal;
mod keys;
mod ledger;
mod migrate;
mod pass_on;
mod pooler;
mod recover;
mod resolve;
mod rows;
mod run;
mod setting;
mod settle;
mod sql;
mod sweep;
mod tools;
mod triggers;
mod twin;
mod url;
mod verbs;
mod verify;
mod views;
mod vitals;
mod waits;
mod wake;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff_sqlx::ToSqlx;
use sqlx::{PgConnection, Postgres};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Semaphore, mpsc::UnboundedSender};

use self::{
    conns::{Conns, Lent, Setup, timed_out},
    recover::Terminated,
    sql::Sql,
};
pub use self::{
    hosts::{Fresh, Hosts},
    migrate::{SCHEMA, migration_sql},
};
use crate::{
    case::CaseView,
    error::{Doing, Error, Result, sqlstate},
    job::Draft,
    key::Enqueued,
    lease::{Token, WorkerId},
    observe::{AttemptView, JobFilter, JobView, Status},
    retention::Retention,
    store::{
        ClaimAsk, ClaimReply, Clock, Expired, Fut, Isolation, Judged, Opening, Resolved, Room, SettledIn, Settlement,
        Store, Stretch, Swept, Timing, Wakes, keys::may_wait, schema,
    },
};

type Pm = sqlx::postgres::PgTransactionManager;

/// The application name of connections given to handlers; `cut` ends only these.
const HANDLER_NAME: &str = "rowlock handler";

/// Connections for claim, settle, wake and reads.
const ENGINE_CONNECTIONS: usize = 4;

/// Connections for claims of adopted tables and what else walks their indexes.
const ROW_CONNECTIONS: usize = 2;

/// How many of them may write keys at a time. A key waits for whoever has it in an open transaction, and what has nothing
/// to do with it must find a connection meanwhile.
const KEYED_CONNECTIONS: usize = ENGINE_CONNECTIONS / 2;

/// A store on one schema of one PostgreSQL database.
#[derive(Clone)]
pub struct PgStore(Arc<Inner>);

pub struct Inner {
    hosts: Arc<Hosts>,
    sql: Sql,
    channel: String,
    timing: Timing,
    handlers_max: usize,
    clock: Clock,
    engine: Arc<Conns>,
    /// For the claims of adopted tables.
    rows: Arc<Conns>,
    keyed: Semaphore,
    handlers: Arc<Conns>,
    heard: Arc<wake::Heard>,
    wakes: OnceLock<UnboundedSender<i64>>,
}

impl Inner {
    fn now(&self) -> Option<jiff_sqlx::Timestamp> {
        self.clock.now().map(ToSqlx::to_sqlx)
    }

    /// Whether a connection keeps the statements that it has once parsed.
    fn named(&self) -> bool {
        self.hosts.pooler.is_none()
    }
}

impl PgStore {
    /// Opens nothing yet.
    pub fn new(hosts: Arc<Hosts>, schema: &str, timing: Timing, handlers_max: usize, clock: Clock) -> Result<PgStore> {
        let sql = Sql::new(schema)?;
        Ok(PgStore(Arc::new(Inner {
            channel: format!("{schema}_wake"),
            sql,
            timing,
            handlers_max,
            clock,
            engine: Conns::new(&hosts, "rowlock engine", engine_setup(timing), ENGINE_CONNECTIONS),
            rows: Conns::new(&hosts, "rowlock engine", row_setup(timing), ROW_CONNECTIONS),
            keyed: Semaphore::new(KEYED_CONNECTIONS),
            handlers: Conns::new(&hosts, HANDLER_NAME, handler_setup(timing), handlers_max.max(1)),
            heard: Arc::default(),
            wakes: OnceLock::new(),
            hosts,
        })))
    }

    /// The same with another lease or another number of connections for handlers.
    pub fn with(&self, timing: Timing, handlers_max: usize) -> Result<PgStore> {
        let inner = &self.0;
        PgStore::new(
            inner.hosts.clone(),
            &inner.sql.schema,
            timing,
            handlers_max,
            inner.clock.clone(),
        )
    }

    /// Bounds a verb: a silent network must not hold its caller for ever.
    fn bounded<'a, T>(&self, doing: &'static str, verb: impl Future<Output = Result<T>> + Send + 'a) -> Fut<'a, T> {
        self.within(self.0.limit(), doing, verb)
    }

    fn within<'a, T>(
        &self,
        limit: Duration,
        doing: &'static str,
        verb: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Fut<'a, T> {
        let engine = self.0.engine.clone();
        Box::pin(async move {
            let result = match tokio::time::timeout(limit, verb).await {
                Ok(result) => result,
                Err(_) => Err(timed_out(doing)).doing(doing),
            };
            result.inspect_err(|error| engine.heed(error))
        })
    }
}

/// For the settle of a serializable transaction: a walk through all leases would count as having read them, and every two
/// handlers that settle beside each other as in conflict. What user code had to run has been run.
const BY_KEY: &str = "set local plan_cache_mode = force_custom_plan; set local enable_seqscan = off; \
                      set local enable_hashjoin = off; set local enable_mergejoin = off";

/// No planner settings here: these connections are the user's to query with.
fn handler_setup(timing: Timing) -> Setup {
    Setup::default().with("tcp_user_timeout", timing.lock.as_millis())
}

fn engine_setup(timing: Timing) -> Setup {
    let ms = timing.lock.as_millis();
    Setup::default()
        .with("lock_timeout", ms)
        .with("idle_in_transaction_session_timeout", ms)
        .with("tcp_user_timeout", ms)
        .with("plan_cache_mode", "force_generic_plan")
        .with("enable_seqscan", "off")
        .with("enable_hashjoin", "off")
        .with("enable_mergejoin", "off")
        .with("jit", "off")
}

/// An index of the user's is walked in its order, whatever the statistics say.
fn row_setup(timing: Timing) -> Setup {
    engine_setup(timing)
        .with("enable_bitmapscan", "off")
        .with("enable_sort", "off")
}

impl Store for PgStore {
    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn twin(&self) -> Box<dyn Store> {
        Box::new(self.twin_here())
    }

    fn schema(&self) -> Fut<'_, schema::SchemaFound> {
        Box::pin(migrate::found(&self.0))
    }

    fn migrate<'a>(&'a self, more: &'a [schema::Migration]) -> Fut<'a, Vec<String>> {
        Box::pin(migrate::run(&self.0, more))
    }

    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            let put = enqueue::commit(&self.0, drafts).await?;
            self.wake(&enqueue::new_queues(drafts, &put));
            Ok(put)
        })
    }

    fn register<'a>(&'a self, worker: WorkerId, name: &'a str, lease: Duration) -> Fut<'a, ()> {
        self.bounded("register", recover::register(&self.0, worker, name, lease))
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply> {
        Box::pin(claim::claim(&self.0, ask))
    }

    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>> {
        let settled = self.bounded("settle", async {
            let (applied, woken) = settle::settle(&self.0, batch).await?;
            self.wake(&woken);
            Ok(applied)
        });
        Box::pin(async {
            // The turn is not part of the limit: waiting for it says nothing about the server.
            let _turn = keys::turn(&self.0, batch.iter().any(|s| may_wait(&s.next))).await;
            settled.await
        })
    }

    fn resolve(&self, token: Token) -> Fut<'_, Resolved> {
        Box::pin(resolve::resolve(&self.0, token))
    }

    fn beat(&self, worker: WorkerId) -> Fut<'_, bool> {
        self.within(self.0.timing.lock, "heartbeat", recover::beat(&self.0, worker))
    }

    fn mark_dead(&self) -> Fut<'_, Judged> {
        self.bounded("mark dead workers", recover::mark_dead(&self.0))
    }

    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>> {
        self.bounded("expire", async move {
            let (expired, woken) = recover::expire(&self.0, max).await?;
            self.wake(&woken);
            Ok(expired)
        })
    }

    fn forget_dead(&self) -> Fut<'_, i64> {
        self.bounded("remove dead workers", recover::forget_dead(&self.0))
    }

    fn moved(&self, worker: WorkerId) -> bool {
        self.0.hosts.has_moved(worker)
    }

    fn left(&self, holder: i64) -> bool {
        self.0.hosts.has_left(conns::backend(holder).0)
    }

    fn leave(&self, worker: WorkerId) -> Fut<'_, ()> {
        self.bounded("unregister", recover::leave(&self.0, worker))
    }

    fn own_leases(&self, worker: WorkerId, in_flight: bool) -> Fut<'_, Vec<Token>> {
        self.bounded("list own leases", recover::own_leases(&self.0, worker, in_flight))
    }

    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool> {
        self.bounded("claim", recover::alone_due(&self.0, stretches, longer_than))
    }

    fn cut(&self, holder: i64) -> Fut<'_, bool> {
        self.bounded("end a backend", async move {
            Ok(matches!(
                recover::terminate(&self.0, holder).await?,
                Terminated::Outside
            ))
        })
    }

    fn ended(&self, holder: i64) -> Fut<'_, bool> {
        self.bounded("end a connection", async move {
            let cut = recover::terminate(&self.0, holder).await?;
            // Behind a pooler, what is outside a transaction is nobody's.
            Ok(matches!(cut, Terminated::Gone) || (matches!(cut, Terminated::Outside) && !self.0.named()))
        })
    }

    fn wake(&self, queues: &[i64]) {
        if queues.is_empty() {
            return;
        }
        let sender = self.0.wakes.get_or_init(|| wake::sender(&self.0));
        for queue in queues {
            // The task ends only with the store; a hint that finds it gone is not needed any more.
            let _ = sender.send(*queue);
        }
    }

    fn wakes(&self) -> Fut<'_, Box<dyn Wakes>> {
        self.bounded("listen", async {
            let inner = &self.0;
            if inner.hosts.pooler.is_some() {
                return Ok(Box::new(wake::Deaf) as Box<dyn Wakes>);
            }
            let listening = wake::Listening::start(inner.hosts.clone(), &inner.channel, inner.heard.clone()).await?;
            Ok(Box::new(listening) as Box<dyn Wakes>)
        })
    }

    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept> {
        Box::pin(sweep::maintain(&self.0, retention))
    }

    fn status(&self) -> Fut<'_, Status> {
        Box::pin(views::status(&self.0))
    }

    fn jobs<'a>(&'a self, filter: &'a JobFilter) -> Fut<'a, Vec<JobView>> {
        Box::pin(views::jobs(&self.0, filter))
    }

    fn job(&self, id: i64) -> Fut<'_, Option<JobView>> {
        Box::pin(views::job(&self.0, id))
    }

    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>> {
        Box::pin(views::attempts(&self.0, id))
    }

    fn cases(&self, error: Option<i64>, max: i64) -> Fut<'_, Vec<CaseView>> {
        Box::pin(views::cases(&self.0, None, error, max))
    }

    fn case(&self, id: i64) -> Fut<'_, Option<CaseView>> {
        Box::pin(async move { Ok(views::cases(&self.0, Some(id), None, 1).await?.pop()) })
    }

    fn chain(&self, id: i64) -> Fut<'_, Vec<JobView>> {
        Box::pin(views::chain(&self.0, id))
    }

    fn reopen<'a>(&'a self, id: i64, actor: &'a str) -> Fut<'a, bool> {
        Box::pin(async move {
            let queue = verbs::reopen(&self.0, id, actor).await?;
            self.wake(queue.as_slice());
            Ok(queue.is_some())
        })
    }
}

impl Room for Postgres {
    type Store = PgStore;
    type Held = Lent;

    fn conn_ref(held: &Lent) -> &PgConnection {
        held.pg_ref()
    }

    fn conn(held: &mut Lent) -> &mut PgConnection {
        held.pg()
    }

    fn holder(held: &Lent) -> i64 {
        held.holder()
    }

    fn enqueue_in<'a>(store: &'a PgStore, conn: &'a mut PgConnection, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        let put = enqueue::enqueue(&store.0, conn, drafts, true);
        Box::pin(async { put.await.map_err(Error::answered) })
    }

    fn begin<'a>(store: &'a PgStore, token: &'a Token, timing: Timing, level: Isolation) -> Fut<'a, Lent> {
        let begin = begin_text(token, timing, level);
        Box::pin(async move {
            let mut lent = store.0.handlers.begin(begin).await?;
            lent.serializable = level == Isolation::Serializable;
            Ok(lent)
        })
    }

    /// Of one moment: a counter that is read after what it protects must not be newer than that.
    fn begin_read<'a>(store: &'a PgStore, timing: Timing) -> Fut<'a, Lent> {
        let ms = timing.lock.as_millis();
        let begin = format!(
            "begin isolation level repeatable read read only; set local lock_timeout = {ms}; \
             set local idle_in_transaction_session_timeout = {ms}"
        );
        Box::pin(async { store.0.handlers.begin(begin).await })
    }

    fn end_read(_store: &PgStore, mut held: Lent) -> Fut<'_, ()> {
        Box::pin(async move {
            Pm::commit(held.pg()).await.doing("end read")?;
            held.give_back();
            Ok(())
        })
    }

    fn back<'a>(store: &'a PgStore, held: &'a mut Lent) -> Fut<'a, bool> {
        store.within(store.0.timing.lock, "roll back", async {
            match sqlx::raw_sql("rollback to savepoint rowlock").execute(held.pg()).await {
                Ok(_) => Ok(true),
                // Not in a transaction, or in one without our savepoint.
                Err(e) if matches!(sqlstate(&e).as_deref(), Some("25P01" | "3B001")) => Ok(false),
                Err(e) => Err(e).doing("roll back"),
            }
        })
    }

    fn settle_in<'a>(store: &'a PgStore, held: &'a mut Lent, settlement: &'a Settlement) -> Fut<'a, SettledIn> {
        Box::pin(async move {
            let mut ours = Pm::get_transaction_depth(held.pg()) == 1;
            if !store.0.named() {
                // Outside a transaction each part of a statement may go to another server.
                ours &= pooler::in_transaction(held.pg()).await.doing("settle")?;
            }
            if !ours {
                return Ok(SettledIn::NotOurs);
            }
            if held.serializable {
                sqlx::raw_sql(BY_KEY).execute(held.pg()).await.doing("settle")?;
            }
            settle::settle_in(&store.0, held.pg(), settlement).await
        })
    }

    fn commit(_store: &PgStore, mut held: Lent) -> Fut<'_, ()> {
        Box::pin(async move {
            Pm::commit(held.pg()).await.doing("commit")?;
            held.give_back();
            Ok(())
        })
    }

    fn passes_on(store: &PgStore, held: &Lent, settlement: &Settlement) -> bool {
        pass_on::passes_on(&store.0, held, settlement)
    }

    fn pass_on<'a>(
        store: &'a PgStore,
        held: &'a mut Lent,
        settlement: &'a Settlement,
        next: Opening,
    ) -> Option<Fut<'a, SettledIn>> {
        pass_on::pass_on(&store.0, held, settlement, next)
    }
}

/// How the transaction of a job on its own begins.
fn begin_text(token: &Token, timing: Timing, level: Isolation) -> String {
    format!("{}; savepoint rowlock", opening(token, timing, level))
}

/// How a handler's transaction begins.
fn opening(marker: &Token, timing: Timing, level: Isolation) -> String {
    let (ms, level) = (timing.lock.as_millis(), level.as_str());
    format!(
        "begin isolation level {level}; set local lock_timeout = {ms}; \
         set local idle_in_transaction_session_timeout = {ms}; set local rowlock_tx.marker = '{marker}'"
    )
}
