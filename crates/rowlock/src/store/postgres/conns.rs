//! Connections that are never reused by accident.
//!
//! A connection goes back to the idle list only by an explicit [`Lent::give_back`] after a successful end. Dropped in
//! any other way (an error, a time limit, an aborted task) its socket closes and the server rolls back. sqlx's own
//! pool would hand out a connection whose `begin` was cancelled half-way, with the transaction still open.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgTransactionManager},
};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a connection attempt may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A bounded set of connections with the same settings.
pub struct Conns {
    options: PgConnectOptions,
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
    pid: i32,
}

impl Conns {
    /// `setup` is run on each new connection.
    pub fn new(options: PgConnectOptions, setup: String, max: usize) -> Arc<Conns> {
        Arc::new(Conns {
            options: options.disable_statement_logging(),
            setup,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(max)),
            waiting: AtomicUsize::new(0),
        })
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
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (conn, fresh) = match idle {
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

    /// Whether somebody waits for a connection.
    pub fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Drops every idle connection: after one of them was found broken, the others likely are too.
    pub fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        let connect = async {
            let mut pg = PgConnection::connect_with(&self.options).await?;
            sqlx::raw_sql(AssertSqlSafe(self.setup.clone()))
                .execute(&mut pg)
                .await?;
            let row = sqlx::query("select pg_backend_pid(), pg_is_in_recovery()")
                .fetch_one(&mut pg)
                .await?;
            if row.try_get(1)? {
                let standby = "this server is a standby; rowlock decides on the primary only";
                return Err(sqlx::Error::Configuration(standby.into()));
            }
            let pid = row.try_get(0)?;
            Ok(Conn { pg, pid })
        };
        tokio::time::timeout(CONNECT_LIMIT, connect)
            .await
            .unwrap_or_else(|_| Err(timed_out("connecting")))
    }
}

/// An error that says which limit ran out.
pub fn timed_out(doing: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("no answer while {doing}"),
    ))
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

    pub fn pid(&self) -> i32 {
        self.conn.pid
    }

    /// Whether it was opened for this use, so that an error cannot come from a server restart in the past.
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    pub fn home(&self) -> &Conns {
        &self.home
    }

    /// Back to the idle list, if it is outside any transaction.
    pub fn give_back(self) {
        if PgTransactionManager::get_transaction_depth(&self.conn.pg) == 0 {
            self.home
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.conn);
        }
    }
}
