//! The PostgreSQL backend.
//!
//! Engine methods run on a few separate connections, with planner settings that fit the queue's statements; handlers
//! get plain connections. Each method has a time limit. Past the limit its future is dropped together with the
//! connection, so a silent network cannot block a worker for ever.

pub mod adopt;
mod batch;
mod claim;
mod connect;
mod engine;
mod enqueue;
mod group;
mod in_tx;
mod inspect;
mod keys;
mod migrate;
mod operate;
mod pass_on;
mod recover;
mod resolve;
mod rows;
mod run;
mod settle;
mod sql;
mod sweep;
pub mod tls;
mod tools;
mod views;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff_sqlx::ToSqlx;
use tokio::sync::{Semaphore, mpsc::UnboundedSender};

pub use self::{
    connect::hosts::{Fresh, Hosts},
    migrate::{SCHEMA, migration_sql},
};
use self::{
    connect::{
        conns::{self, Conns, Setup, timed_out},
        hosts, pooler, url, wake,
    },
    sql::Sql,
    tools::{body_lock, breaker, by_key, guard, journal, ledger, triggers, waits},
    views::{cases, verify, vitals},
};
use crate::{
    error::{Doing, Result},
    store::{Clock, Fut, Opening, Timing},
};

type Pm = sqlx::postgres::PgTransactionManager;

/// The application name of handler connections; `cut` ends only these.
const HANDLER_NAME: &str = "rowlock handler";

/// Connections for claims, settlements, notifications and reads.
const ENGINE_CONNECTIONS: usize = 4;

/// Connections for claims of adopted tables and for other statements that scan their indexes.
const ROW_CONNECTIONS: usize = 2;

/// How many of these connections may write keys at a time. Writing a key waits for an open transaction that has the
/// key, and unrelated methods need a free connection meanwhile.
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

    /// Whether a connection keeps its parsed statements.
    fn named(&self) -> bool {
        self.hosts.pooler.is_none()
    }
}

impl PgStore {
    /// Opens no connection yet.
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

    /// This store with another lease or another number of connections for handlers.
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

    /// The same store with its own connections.
    pub fn separate(&self) -> PgStore {
        let inner = &self.0;
        let engine = |setup, max| Conns::new(&inner.hosts, "rowlock watch", setup, max);
        PgStore(Arc::new(Inner {
            hosts: inner.hosts.clone(),
            sql: inner.sql.clone(),
            channel: inner.channel.clone(),
            timing: inner.timing,
            handlers_max: inner.handlers_max,
            clock: inner.clock.clone(),
            engine: engine(engine_setup(inner.timing), 2),
            rows: engine(row_setup(inner.timing), 1),
            keyed: Semaphore::new(1),
            handlers: engine(Setup::default(), 1),
            heard: inner.heard.clone(),
            wakes: OnceLock::new(),
        }))
    }

    /// Limits the time of a method: a silent network must not block its caller for ever.
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

/// For the settle of a serializable transaction. A scan of all leases would count as reading them, and any two handlers
/// that settle concurrently would conflict. User code no longer runs in this transaction.
const BY_KEY: &str = "set local plan_cache_mode = force_custom_plan; set local enable_seqscan = off; \
                      set local enable_hashjoin = off; set local enable_mergejoin = off";

/// No planner settings here: user code runs its queries on these connections.
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

/// An index of the user's table is scanned in its order, whatever the statistics say.
fn row_setup(timing: Timing) -> Setup {
    engine_setup(timing)
        .with("enable_bitmapscan", "off")
        .with("enable_sort", "off")
}

/// The statements that begin the transaction of a single job.
fn begin_text(open: Opening) -> String {
    format!("{}; savepoint rowlock", opening(open))
}

/// The statements that begin a handler's transaction.
fn opening(open: Opening) -> String {
    let (ms, level, marker) = (open.timing.lock.as_millis(), open.level.as_str(), open.token);
    format!(
        "begin isolation level {level}; set local lock_timeout = {ms}; \
         set local idle_in_transaction_session_timeout = {ms}; set local rowlock_tx.marker = '{marker}'"
    )
}
