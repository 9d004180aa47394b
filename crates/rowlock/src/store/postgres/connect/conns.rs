//! Connections that are never reused by accident.
//!
//! A connection goes back to the idle list only by an explicit [`Lent::give_back`] after a successful end. If it is
//! dropped in any other way (an error, a time limit, an aborted task), its socket closes and the server rolls back.
//! sqlx's own pool would hand out a connection whose `begin` was cancelled half-way, with the transaction still open.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqlSafeStr, postgres::PgConnectOptions};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Doing, Error, Result};
use crate::store::postgres::{
    HANDLER_NAME, Pm,
    hosts::{CONNECT_LIMIT, Hosts, Server},
    pooler::{self, Pooler},
};

/// A bounded set of connections with the same settings.
pub struct Conns {
    hosts: Arc<Hosts>,
    /// The name of these connections in the server's list of connections.
    name: &'static str,
    setup: Setup,
    idle: Mutex<Vec<Conn>>,
    permits: Arc<Semaphore>,
    /// How many callers wait for a connection.
    waiting: AtomicUsize,
}

/// Counts as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Conn {
    pg: PgConnection,
    server: Server,
}

/// The settings of a set's connections, besides the server's defaults.
#[derive(Clone, Default)]
pub struct Setup(Vec<(&'static str, String)>);

/// A role may default to a stricter level. Under such a level, two statements of one transaction would share a
/// snapshot.
const ISOLATION: &str = "set session characteristics as transaction isolation level read committed";

impl Setup {
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Setup {
        self.0.push((name, value.to_string()));
        self
    }

    fn for_session(&self) -> String {
        let set = |(name, value): &(&str, String)| format!("; set {name} = {value}");
        ISOLATION.to_owned() + &self.0.iter().map(set).collect::<String>()
    }

    fn for_transaction(&self) -> String {
        let set = |(name, value): &(&str, String)| format!("set local {name} = {value}; ");
        self.0.iter().map(set).collect()
    }
}

impl Conns {
    pub fn new(hosts: &Arc<Hosts>, name: &'static str, setup: Setup, max: usize) -> Arc<Conns> {
        let set = Arc::new(Conns {
            hosts: hosts.clone(),
            name,
            setup,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(max)),
            waiting: AtomicUsize::new(0),
        });
        hosts.serve(&set);
        set
    }

    /// A connection for statements that are one commit each; return it with [`Lent::end`]. Cancel-safe.
    pub async fn acquire(self: &Arc<Self>) -> sqlx::Result<Lent> {
        let mut lent = self.take().await?;
        if self.hosts.pooler.is_some() {
            lent.begin("begin isolation level read committed;").await?;
        }
        Ok(lent)
    }

    /// Waits for a free permit, then takes an idle connection or opens a new one. Cancel-safe.
    pub async fn take(self: &Arc<Self>) -> sqlx::Result<Lent> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                let permit = self.permits.clone().acquire_owned().await;
                permit.map_err(|_| sqlx::Error::PoolClosed)?
            }
        };
        let (conn, fresh) = match self.take_idle() {
            Some(conn) => (conn, false),
            None => (self.connect().await?, true),
        };
        Ok(Lent {
            conn,
            home: self.clone(),
            _permit: permit,
            fresh,
            serializable: false,
        })
    }

    /// Begins on an idle connection, and on a new one if the idle connection is dead. Nothing has happened yet, so
    /// trying again is safe.
    pub async fn begin(self: &Arc<Self>, text: String) -> Result<Lent> {
        loop {
            let mut lent = self.take().await.doing("begin")?;
            // A server that vanished silently must not block the caller. After the socket is closed, no transaction
            // stays open.
            let begun = tokio::time::timeout(CONNECT_LIMIT, lent.begin(&text)).await;
            match begun.unwrap_or_else(|_| Err(timed_out("beginning"))) {
                Ok(()) => return Ok(lent),
                Err(_) if !lent.fresh => self.forget_idle(),
                Err(error) => return Err(error).doing("begin"),
            }
        }
    }

    fn take_idle(&self) -> Option<Conn> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Whether a caller waits for a connection.
    pub fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Drops every idle connection: after one of them was found broken, the others are probably broken too.
    pub fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Drops the connections that this error shows to be unusable.
    pub fn heed(&self, error: &Error) {
        self.hosts.heed(error);
        if let Error::Database {
            source: sqlx::Error::Io(_),
            ..
        } = error
        {
            // A server restart has broken the idle connections too.
            self.forget_idle();
        }
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        let open = |options| async {
            let options = PgConnectOptions::application_name(options, self.name);
            let opened = PgConnection::connect_with(&options).await;
            let mut pg = opened.map_err(pooler::explained)?;
            if self.hosts.pooler.is_none() {
                let set = sqlx::raw_sql(AssertSqlSafe(self.setup.for_session()));
                set.execute(&mut pg).await?;
            }
            let server = self.hosts.check(&mut pg, &options).await?;
            Ok(Conn { pg, server })
        };
        self.hosts.find(open).await
    }
}

/// An error that names the operation whose time limit ran out.
pub fn timed_out(doing: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("{doing}: no answer in time"),
    ))
}

fn holder(timeline: u32, number: i32) -> i64 {
    i64::from(timeline) << 32 | i64::from(number as u32)
}

/// Splits what [`Lent::holder`] put together.
pub fn backend(holder: i64) -> (u32, i32) {
    ((holder >> 32) as u32, holder as i32)
}

/// A connection in use. If it is dropped, it closes.
pub struct Lent {
    conn: Conn,
    home: Arc<Conns>,
    _permit: OwnedSemaphorePermit,
    /// Whether it was opened for this use, so that an error cannot come from an earlier server restart.
    fresh: bool,
    /// Whether its transaction is serializable; then every row that a statement only scans counts as read.
    pub serializable: bool,
}

impl Lent {
    pub fn pg(&mut self) -> &mut PgConnection {
        &mut self.conn.pg
    }

    pub fn pg_ref(&self) -> &PgConnection {
        &self.conn.pg
    }

    /// Begins a transaction with this text, which may also change settings.
    pub async fn begin(&mut self, text: &str) -> sqlx::Result<()> {
        let home = self.home.clone();
        let Some(pooler) = &home.hosts.pooler else {
            return Pm::begin(self.pg(), Some(AssertSqlSafe(text.to_owned()).into_sql_str())).await;
        };
        let text = Pooler::begin(text, &home.setup.for_transaction());
        Pm::begin(self.pg(), Some(AssertSqlSafe(text).into_sql_str())).await?;
        let name = (home.name == HANDLER_NAME).then(|| pooler.name(HANDLER_NAME));
        let before = self.conn.server;
        self.conn.server = home.hosts.check_again(self.pg(), before, name).await?;
        Ok(())
    }

    /// Commits an open transaction, and returns the connection to the idle list.
    pub async fn end(mut self, doing: &'static str) -> Result<()> {
        Pm::commit(self.pg()).await.doing(doing)?;
        self.give_back();
        Ok(())
    }

    /// Commits the statements so far, if they are in a transaction.
    pub async fn commit_so_far(&mut self) -> sqlx::Result<()> {
        if Pm::get_transaction_depth(self.pg()) > 0 {
            Pm::commit(self.pg()).await?;
            self.begin("begin isolation level read committed;").await?;
        }
        Ok(())
    }

    /// The server process or transaction, combined with its timeline: numbers of two servers cannot be compared.
    pub fn holder(&self) -> i64 {
        holder(self.conn.server.timeline, self.conn.server.number)
    }

    pub fn timeline(&self) -> u32 {
        self.conn.server.timeline
    }

    /// Returns the connection to the idle list, unless it is in a transaction or its server has been left meanwhile.
    pub fn give_back(self) {
        if Pm::get_transaction_depth(&self.conn.pg) > 0 {
            return;
        }
        let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock: the code that leaves a server first raises the generation and then clears the idle
        // list.
        if self.conn.server.generation == self.home.hosts.generation() {
            idle.push(self.conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{backend, holder};

    #[test]
    fn a_backend_is_known_by_its_timeline_and_its_process() {
        for (timeline, pid) in [(0, 1), (1, 4_194_304), (7, i32::MAX)] {
            assert_eq!(backend(holder(timeline, pid)), (timeline, pid));
        }
        assert_ne!(holder(0, 42), holder(1, 42));
    }
}
