//! Opens connections, and keeps the few readers.
//!
//! A connection is used again only after an explicit, successful end. If it is dropped in any other way, it closes:
//! sqlx's thread for it stops, and SQLite rolls back. A statement that is still running is interrupted first, so that
//! an abandoned query cannot keep the write lock.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous, SqliteTransactionManager},
};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::Timing;
use crate::store::sqlite::refused;

/// Before this version, two connections can corrupt a database in WAL mode.
const OLDEST_LIBRARY: [u32; 3] = [3, 51, 3];

/// Connections that read at the same time.
const READERS_MAX: usize = 4;

/// The longest wait for the write lock, whatever the lease.
const LOCK_MAX: Duration = Duration::from_secs(3600);

/// The write-ahead log is truncated to this size after a checkpoint.
const WAL_BYTES_MAX: u32 = 64 << 20;

/// How many SQLite instructions run between two checks whether the connection was abandoned.
const OPS_BETWEEN_LOOKS: i32 = 10_000;

/// How to open a connection to one database file.
#[derive(Clone)]
pub struct Opening {
    writer: SqliteConnectOptions,
    reader: SqliteConnectOptions,
    /// The shortest wait for the write lock among the stores that share this.
    lock_ms: Arc<AtomicU64>,
}

impl Opening {
    pub fn new(options: SqliteConnectOptions, timing: Timing) -> Opening {
        let both = options.create_if_missing(true).pragma("mmap_size", "0");
        let writer = both
            .clone()
            .busy_timeout(Duration::ZERO)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", WAL_BYTES_MAX.to_string());
        Opening {
            writer,
            reader: both.busy_timeout(timing.lock).pragma("query_only", "on"),
            lock_ms: Arc::new(AtomicU64::new(millis(timing.lock))),
        }
    }

    /// From now on, waits for the write lock are no longer than this.
    pub fn wait_at_most(&self, lock: Duration) {
        self.lock_ms.fetch_min(millis(lock), Ordering::Relaxed);
    }

    pub fn patience(&self) -> Patience {
        let lock = Duration::from_millis(self.lock_ms.load(Ordering::Relaxed));
        Patience {
            until: Instant::now() + lock.min(LOCK_MAX),
        }
    }

    pub fn file(&self) -> &Path {
        self.writer.get_filename()
    }

    /// The path that every store of the file in this process uses as its name, once the file exists.
    pub fn canonical(&self) -> PathBuf {
        std::fs::canonicalize(self.file()).unwrap_or_else(|_| self.file().to_owned())
    }

    /// A connection that may write. Runs on the writer's own thread, which has a timer.
    pub async fn writer(&self) -> sqlx::Result<Conn> {
        let mut patience = self.patience();
        loop {
            // Processes that switch a new file to WAL at the same moment block each other.
            match self.try_writer().await {
                Err(error) if refused::is_busy(&error) && patience.wait().await => {}
                opened => return opened,
            }
        }
    }

    async fn try_writer(&self) -> sqlx::Result<Conn> {
        let mut sql = self.writer.connect().await?;
        check_library(&mut sql).await?;
        let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(&mut sql).await?;
        if mode != "wal" {
            let problem = format!(
                "{} is in journal mode {mode}, not WAL; use a file on a local disk",
                self.name()
            );
            return Err(sqlx::Error::Configuration(problem.into()));
        }
        Conn::new(sql).await
    }

    /// A connection on which writes fail.
    pub async fn reader(&self) -> sqlx::Result<Conn> {
        let mut sql = self.reader.connect().await?;
        check_library(&mut sql).await?;
        Conn::new(sql).await
    }

    /// A reader that polls so often that its statements would flood the log.
    pub async fn quiet_reader(&self) -> sqlx::Result<Conn> {
        Conn::new(self.reader.clone().disable_statement_logging().connect().await?).await
    }

    pub fn name(&self) -> String {
        self.file().display().to_string()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn check_library(sql: &mut SqliteConnection) -> sqlx::Result<()> {
    let version: String = sqlx::query_scalar("select sqlite_version()").fetch_one(sql).await?;
    let numbers: Vec<u32> = version.split('.').map_while(|n| n.parse().ok()).collect();
    if numbers.as_slice() >= OLDEST_LIBRARY.as_slice() {
        return Ok(());
    }
    let [a, b, c] = OLDEST_LIBRARY;
    let problem = format!("SQLite {version} can corrupt a database in WAL mode; link {a}.{b}.{c} or newer");
    Err(sqlx::Error::Configuration(problem.into()))
}

/// How long to keep trying to get the write lock. SQLite's own busy handler soon tries only every 100 ms, and starves
/// for seconds beside a process that writes all the time. Trying every few milliseconds finds the gaps.
pub struct Patience {
    until: Instant,
}

impl Patience {
    /// Waits a moment, if there is time left.
    pub async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(500..2500))).await;
        true
    }
}

/// One connection. If it is dropped, it interrupts its running statement and closes.
pub struct Conn {
    sql: SqliteConnection,
    abandoned: Arc<AtomicBool>,
    deadline: Arc<Deadline>,
    commits: Arc<AtomicU64>,
    seal: Arc<Seal>,
}

/// When the running statement is interrupted, if ever.
struct Deadline {
    opened: Instant,
    /// In microseconds since `opened`.
    after: AtomicU64,
}

impl Deadline {
    const NEVER: u64 = u64::MAX;

    fn set(&self, at: Option<Instant>) {
        let micros = |at: Instant| u64::try_from(at.duration_since(self.opened).as_micros()).unwrap_or(Self::NEVER);
        self.after.store(at.map_or(Self::NEVER, micros), Ordering::Relaxed);
    }

    fn passed(&self) -> bool {
        let after = self.after.load(Ordering::Relaxed);
        after != Self::NEVER && self.opened.elapsed().as_micros() >= u128::from(after)
    }
}

/// Whether commits are allowed.
#[derive(Default)]
pub struct Seal(AtomicU8);

impl Seal {
    const OPEN: u8 = 0;
    const CLOSED: u8 = 1;
    const MET: u8 = 2;

    pub fn close(&self) {
        self.0.store(Self::CLOSED, Ordering::Relaxed);
    }

    pub fn open(&self) {
        self.0.store(Self::OPEN, Ordering::Relaxed);
    }

    /// Whether a commit was refused.
    pub fn met(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::MET
    }

    /// Called for each commit; returns whether the commit is allowed.
    fn passes(&self) -> bool {
        let open = self.0.load(Ordering::Relaxed) == Self::OPEN;
        if !open {
            self.0.store(Self::MET, Ordering::Relaxed);
        }
        open
    }
}

impl Conn {
    async fn new(mut sql: SqliteConnection) -> sqlx::Result<Conn> {
        let abandoned = Arc::new(AtomicBool::new(false));
        let deadline = Arc::new(Deadline {
            opened: Instant::now(),
            after: AtomicU64::new(Deadline::NEVER),
        });
        let (flag, limit) = (abandoned.clone(), deadline.clone());
        let commits = Arc::new(AtomicU64::new(0));
        let (counted, seal) = (commits.clone(), Arc::<Seal>::default());
        let sealed = seal.clone();
        let mut handle = sql.lock_handle().await?;
        handle.set_progress_handler(OPS_BETWEEN_LOOKS, move || {
            !flag.load(Ordering::Relaxed) && !limit.passed()
        });
        handle.set_commit_hook(move || {
            let passes = sealed.passes();
            counted.fetch_add(passes.into(), Ordering::Relaxed);
            passes
        });
        drop(handle);
        Ok(Conn {
            sql,
            abandoned,
            deadline,
            commits,
            seal,
        })
    }

    pub fn sql(&mut self) -> &mut SqliteConnection {
        &mut self.sql
    }

    pub fn sql_ref(&self) -> &SqliteConnection {
        &self.sql
    }

    /// How many transactions were committed on this connection, by the engine or by user code.
    pub fn commits(&self) -> Arc<AtomicU64> {
        self.commits.clone()
    }

    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// The depth of transactions and savepoints, as sqlx counts it.
    pub fn depth(&self) -> usize {
        SqliteTransactionManager::get_transaction_depth(&self.sql)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// A bounded set of connections that only read.
pub struct Readers {
    opening: Opening,
    idle: Mutex<Vec<Conn>>,
    places: Arc<Semaphore>,
}

impl Readers {
    pub fn new(opening: Opening) -> Arc<Readers> {
        Arc::new(Readers {
            opening,
            idle: Mutex::new(Vec::new()),
            places: Arc::new(Semaphore::new(READERS_MAX)),
        })
    }

    /// Waits for a free permit, then takes an idle connection or opens a new one. Cancel-safe.
    pub async fn acquire(self: &Arc<Self>) -> sqlx::Result<Reading> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.opening.reader().await?,
        };
        Ok(Reading {
            conn,
            home: self.clone(),
            _place: place,
        })
    }
}

/// A reading connection in use. If it is dropped, it closes.
pub struct Reading {
    conn: Conn,
    home: Arc<Readers>,
    _place: OwnedSemaphorePermit,
}

impl Reading {
    pub fn sql(&mut self) -> &mut SqliteConnection {
        self.conn.sql()
    }

    pub fn sql_ref(&self) -> &SqliteConnection {
        self.conn.sql_ref()
    }

    /// From this time on, statements on this connection are interrupted, until the next call.
    pub fn interrupt_at(&self, at: Option<Instant>) {
        self.conn.deadline.set(at);
    }

    /// Returns the connection to the idle list, if it is outside any transaction.
    pub fn give_back(self) {
        if self.conn.depth() == 0 {
            self.home
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.conn);
        }
    }
}
