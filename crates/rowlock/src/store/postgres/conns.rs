//! Connections that are never reused by accident.
//!
//! A connection goes back to the idle list only by an explicit [`Lent::give_back`] after a successful end. Dropped in
//! any other way (an error, a time limit, an aborted task) its socket closes and the server rolls back. sqlx's own
//! pool would hand out a connection whose `begin` was cancelled half-way, with the transaction still open.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use sqlx::{
    AssertSqlSafe, Connection, PgConnection,
    postgres::{PgConnectOptions, PgTransactionManager},
};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hosts::{Hosts, Server};
use crate::error::Error;

/// A bounded set of connections with the same settings.
pub struct Conns {
    hosts: Arc<Hosts>,
    /// What the server's list of connections calls them.
    name: &'static str,
    setup: String,
    idle: Mutex<Vec<Conn>>,
    permits: Arc<Semaphore>,
    /// How many wait for a place.
    waiting: AtomicUsize,
}

/// Counted while it lives.
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

impl Conns {
    /// `setup` is run on each new connection.
    pub fn new(hosts: &Arc<Hosts>, name: &'static str, setup: String, max: usize) -> Arc<Conns> {
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

    /// Waits for a free place, then takes an idle connection or opens one. Cancel-safe.
    pub async fn acquire(self: &Arc<Self>) -> sqlx::Result<Lent> {
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

    fn take_idle(&self) -> Option<Conn> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Whether somebody waits for a connection.
    pub fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Drops every idle connection: after one of them was found broken, the others likely are too.
    pub fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets the connections that this error speaks for.
    pub fn heed(&self, error: &Error) {
        self.hosts.heed(error);
        if let Error::Database {
            source: sqlx::Error::Io(_),
            ..
        } = error
        {
            // A server that restarted has broken the idle connections too.
            self.forget_idle();
        }
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        let open = |options| async {
            let options = PgConnectOptions::application_name(options, self.name);
            let mut pg = PgConnection::connect_with(&options).await?;
            sqlx::raw_sql(AssertSqlSafe(self.setup.clone()))
                .execute(&mut pg)
                .await?;
            let server = self.hosts.check(&mut pg, &options).await?;
            Ok(Conn { pg, server })
        };
        self.hosts.find(open).await
    }
}

/// An error that says which limit ran out.
pub fn timed_out(doing: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("no answer while {doing}"),
    ))
}

fn holder(timeline: u32, pid: i32) -> i64 {
    i64::from(timeline) << 32 | i64::from(pid)
}

/// What [`Lent::holder`] put together.
pub fn backend(holder: i64) -> (u32, i32) {
    ((holder >> 32) as u32, holder as i32)
}

/// A connection in somebody's hands. Dropped, it closes.
pub struct Lent {
    conn: Conn,
    home: Arc<Conns>,
    _permit: OwnedSemaphorePermit,
    fresh: bool,
    /// Whether its transaction is; every row that a statement merely walks past then counts as read.
    pub serializable: bool,
}

impl Lent {
    pub fn pg(&mut self) -> &mut PgConnection {
        &mut self.conn.pg
    }

    pub fn pg_ref(&self) -> &PgConnection {
        &self.conn.pg
    }

    /// Its backend, and on whose timeline: process ids of two servers say nothing about each other.
    pub fn holder(&self) -> i64 {
        holder(self.conn.server.timeline, self.conn.server.pid)
    }

    pub fn timeline(&self) -> u32 {
        self.conn.server.timeline
    }

    /// Whether it was opened for this use, so that an error cannot come from a server restart in the past.
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    pub fn home(&self) -> &Conns {
        &self.home
    }

    /// Back to the idle list, if it is outside any transaction and its server has not been left meanwhile.
    pub fn give_back(self) {
        if PgTransactionManager::get_transaction_depth(&self.conn.pg) > 0 {
            return;
        }
        let mut idle = self.home.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked under the lock: whoever leaves a server counts first and forgets what is idle then.
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
