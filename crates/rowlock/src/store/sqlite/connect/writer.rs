//! The single writer of a store: every write asks it for a turn.
//!
//! The writer runs on a separate thread, so a turn that has begun never depends on a caller's runtime being polled. A
//! handler that blocks its executor cannot leave the database locked in the middle of a claim. A caller that gives up
//! does not split a transaction. The thread also makes the store usable from any runtime.
//!
//! Turns that wait at the same moment share one transaction and so one sync to disk. Callers get their answers only
//! after the commit. When one turn fails, all are rolled back and each is run again alone. A handler gets exclusive use
//! of the connection itself, and the writer waits until the connection comes back. If the connection does not come
//! back, it was closed, and the next turn opens another.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, LazyLock, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use sqlx::{SqlSafeStr, SqliteConnection, sqlite::SqliteTransactionManager as Tm};
use sqlx_core::transaction::TransactionManager;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};

use crate::store::sqlite::{
    conns::{Conn, Opening},
    now_us, refused,
};
use crate::{
    error::{Doing, Result},
    store::Clock,
};

/// The maximum number of turns that share one commit.
const TURNS_MAX: usize = 64;

/// After this much work without a pause, the writer leaves the lock free for a tenth of the time that the work took.
/// Connections of other processes and of the application try to get the lock only from time to time. Without a long
/// enough gap, they would starve beside a writer that always has a next turn.
const BUSY_MAX: Duration = Duration::from_millis(40);
const GAP_MAX: Duration = Duration::from_millis(100);

const BEGIN: &str = "begin immediate";

/// A running operation on a connection.
pub type Work<'c, T> = Pin<Box<dyn Future<Output = sqlx::Result<T>> + Send + 'c>>;

/// An operation on a connection, at the given time in microseconds, with the given input.
pub type Verb<I, T> = for<'c> fn(&'c mut SqliteConnection, i64, &'c I) -> Work<'c, T>;

/// The thread of all writers in the process. It only waits and forwards: SQLite itself runs on sqlx's threads, one per
/// connection.
static THREAD: LazyLock<std::io::Result<Handle>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("rowlock-sqlite".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
});

pub struct Writer {
    opening: Opening,
    clock: Clock,
    /// Unbounded, but never longer than the number of waiting callers.
    asks: OnceLock<mpsc::UnboundedSender<Ask>>,
}

enum Ask {
    Write(Box<dyn Turn>),
    Lend(oneshot::Sender<sqlx::Result<Lent>>),
}

impl Writer {
    pub fn new(opening: Opening, clock: Clock) -> Writer {
        Writer {
            opening,
            clock,
            asks: OnceLock::new(),
        }
    }

    /// Runs `verb` in a transaction that holds the write lock, and returns after the commit. An error does not mean
    /// that nothing happened. Cancel-safe: if it is dropped before its turn, it does not run; after that, it completes
    /// by itself.
    pub async fn write<I, T>(&self, doing: &'static str, limit: Duration, input: I, verb: Verb<I, T>) -> Result<T>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let turn = Pending {
            input,
            verb,
            value: None,
            clock: self.clock.clone(),
            reply,
        };
        self.ask(Ask::Write(Box::new(turn))).doing(doing)?;
        self.within(limit, answer).await.doing(doing)
    }

    /// Lends the connection, in a transaction that holds the write lock and under the savepoint `rowlock`.
    pub async fn lend(&self, limit: Duration) -> Result<Lent> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Lend(reply)).doing("begin")?;
        self.within(limit, answer).await.doing("begin")
    }

    fn ask(&self, ask: Ask) -> sqlx::Result<()> {
        let thread = THREAD
            .as_ref()
            .map_err(|e| sqlx::Error::Io(std::io::Error::new(e.kind(), e.to_string())))?;
        let asks = self.asks.get_or_init(|| {
            let (asks, asked) = mpsc::unbounded_channel();
            let desk = Desk {
                opening: self.opening.clone(),
                idle: None,
                turns: VecDeque::new(),
                lends: VecDeque::new(),
            };
            thread.spawn(desk.serve(asked));
            asks
        });
        asks.send(ask).map_err(|_| sqlx::Error::WorkerCrashed)
    }

    async fn within<T>(&self, limit: Duration, answer: oneshot::Receiver<sqlx::Result<T>>) -> sqlx::Result<T> {
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(answered)) => answered.map_err(|e| refused::explained(e, &self.opening.name())),
            Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed),
            Err(_) => Err(refused::no_turn(&self.opening.name(), limit)),
        }
    }
}

/// One caller's part of a transaction that others may share.
trait Turn: Send {
    /// Whether the caller has stopped waiting.
    fn given_up(&self) -> bool;
    /// May run more than once; the writes of earlier runs were rolled back.
    fn run<'c>(&'c mut self, sql: &'c mut SqliteConnection) -> Work<'c, ()>;
    /// Sends the answer, now that the outcome of the transaction is known.
    fn end(self: Box<Self>, fate: sqlx::Result<()>);
}

struct Pending<I, T> {
    input: I,
    verb: Verb<I, T>,
    value: Option<T>,
    clock: Clock,
    reply: oneshot::Sender<sqlx::Result<T>>,
}

impl<I, T> Turn for Pending<I, T>
where
    I: Send + Sync + 'static,
    T: Send + 'static,
{
    fn given_up(&self) -> bool {
        self.reply.is_closed()
    }

    fn run<'c>(&'c mut self, sql: &'c mut SqliteConnection) -> Work<'c, ()> {
        Box::pin(async move {
            // The clock is read here, with the write lock held, because a turn may have waited for long.
            let now = now_us(&self.clock);
            self.value = Some(unpanicked((self.verb)(sql, now, &self.input)).await?);
            Ok(())
        })
    }

    fn end(self: Box<Self>, fate: sqlx::Result<()>) {
        let Pending { value, reply, .. } = *self;
        // The turn ran even if its caller is gone; the caller will look up what happened.
        let _ = reply.send(fate.and_then(|()| value.ok_or(sqlx::Error::WorkerCrashed)));
    }
}

/// A panic fails only the operation that caused it: all callers share the writer, and the writer continues.
async fn unpanicked<T>(mut work: Work<'_, T>) -> sqlx::Result<T> {
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            tracing::error!("an operation panicked inside the writer; its transaction is rolled back");
            Poll::Ready(Err(sqlx::Error::WorkerCrashed))
        })
    })
    .await
}

/// A handler's use of the writer. If it is dropped, the connection closes, SQLite rolls back, and the next turn begins.
pub struct Lent {
    conn: Conn,
    loan: Loan,
    home: oneshot::Sender<End>,
}

/// The number by which the watch finds a loan while its handler keeps the connection.
struct Loan(i64);

/// The commit counter of each lent connection, and its value at the start of the loan.
static LOANS: LazyLock<Mutex<HashMap<i64, CommitsSince>>> = LazyLock::new(Mutex::default);

type CommitsSince = (Arc<AtomicU64>, u64);

impl Loan {
    fn new(commits: Arc<AtomicU64>) -> Loan {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let before = commits.load(Ordering::Relaxed);
        LOANS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, (commits, before));
        Loan(number)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        LOANS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Whether a commit happened on this loan: only user code can have sent it.
pub fn committed_by_user(number: i64) -> bool {
    let loans = LOANS.lock().unwrap_or_else(PoisonError::into_inner);
    loans
        .get(&number)
        .is_some_and(|(commits, before)| commits.load(Ordering::Relaxed) != *before)
}

struct End {
    conn: Conn,
    reply: oneshot::Sender<sqlx::Result<()>>,
}

impl Lent {
    pub fn sql(&mut self) -> &mut SqliteConnection {
        self.conn.sql()
    }

    pub fn sql_ref(&self) -> &SqliteConnection {
        self.conn.sql_ref()
    }

    /// Whether a commit happened during the loan: only user code can have sent it.
    pub fn committed_by_user(&self) -> bool {
        committed_by_user(self.loan.0)
    }

    pub fn number(&self) -> i64 {
        self.loan.0
    }

    pub fn depth(&self) -> usize {
        self.conn.depth()
    }

    /// From here on every commit fails, until [`Lent::commit`].
    pub fn seal(&self) {
        self.conn.seal().close();
    }

    /// Whether a commit failed because of the seal: only user code can have sent it.
    pub fn seal_met(&self) -> bool {
        self.conn.seal().met()
    }

    /// Commits on the writer's thread, so that the next turn does not wait for this caller to be polled.
    pub async fn commit(self) -> sqlx::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.conn.seal().open();
        let end = End { conn: self.conn, reply };
        self.home.send(end).map_err(|_| sqlx::Error::WorkerCrashed)?;
        answer.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

/// The writer's side: it owns the connection while the connection is not lent.
struct Desk {
    opening: Opening,
    idle: Option<Conn>,
    turns: VecDeque<Box<dyn Turn>>,
    lends: VecDeque<oneshot::Sender<sqlx::Result<Lent>>>,
}

impl Desk {
    /// All waiting turns run between two handlers, so that a heartbeat waits for one handler at most.
    async fn serve(mut self, mut asked: mpsc::UnboundedReceiver<Ask>) {
        let mut busy_since = Instant::now();
        loop {
            while let Ok(ask) = asked.try_recv() {
                self.queue(ask);
            }
            if self.turns.is_empty() && self.lends.is_empty() {
                let Some(ask) = asked.recv().await else { return };
                self.queue(ask);
                busy_since = Instant::now();
                continue;
            }
            let busy = busy_since.elapsed();
            if busy > BUSY_MAX {
                tokio::time::sleep((busy / 10).min(GAP_MAX)).await;
                busy_since = Instant::now();
            }
            let turns = self.turns.drain(..self.turns.len().min(TURNS_MAX));
            let turns = turns.filter(|t| !t.given_up()).collect();
            self.write(turns).await;
            if let Some(reply) = self.lends.pop_front() {
                self.lend(reply).await;
            }
        }
    }

    fn queue(&mut self, ask: Ask) {
        match ask {
            Ask::Write(turn) => self.turns.push_back(turn),
            Ask::Lend(reply) => self.lends.push_back(reply),
        }
    }

    /// The connection, in a transaction that holds the write lock.
    async fn begin(&mut self, statement: &'static str) -> sqlx::Result<Conn> {
        let mut conn = match self.idle.take() {
            Some(conn) => conn,
            None => self.opening.writer().await?,
        };
        let mut patience = self.opening.patience();
        loop {
            match Tm::begin(conn.sql(), Some(statement.into_sql_str())).await {
                Ok(()) => return Ok(conn),
                Err(error) if !refused::is_busy(&error) => return Err(error),
                Err(_) if patience.wait().await => {}
                Err(error) => {
                    // No transaction began, so the connection can be used again.
                    self.keep(conn);
                    return Err(error);
                }
            }
        }
    }

    async fn lend(&mut self, reply: oneshot::Sender<sqlx::Result<Lent>>) {
        if reply.is_closed() {
            return;
        }
        let conn = match self.begin("begin immediate; savepoint rowlock").await {
            Ok(conn) => conn,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let (home, back) = oneshot::channel();
        // If the caller is gone, the loan is dropped together with the connection.
        let loan = Loan::new(conn.commits());
        let _ = reply.send(Ok(Lent { conn, loan, home }));
        if let Ok(End { mut conn, reply }) = back.await {
            let committed = Tm::commit(conn.sql()).await;
            if committed.is_ok() {
                self.keep(conn);
            }
            let _ = reply.send(committed);
        }
    }

    async fn write(&mut self, mut turns: Vec<Box<dyn Turn>>) {
        if turns.len() > 1 {
            match self.write_together(&mut turns).await {
                Ok(true) => return turns.into_iter().for_each(|turn| turn.end(Ok(()))),
                Ok(false) => {}
                Err(error) => return turns.into_iter().for_each(|turn| turn.end(Err(refused::again(&error)))),
            }
        }
        for mut turn in turns {
            let fate = self.write_alone(&mut *turn).await;
            turn.end(fate);
        }
    }

    /// Runs all turns in one commit; `false` when one of them failed and all were rolled back.
    async fn write_together(&mut self, turns: &mut [Box<dyn Turn>]) -> sqlx::Result<bool> {
        let mut conn = self.begin(BEGIN).await?;
        for turn in turns {
            if turn.run(conn.sql()).await.is_err() {
                self.undo(conn).await;
                return Ok(false);
            }
        }
        Tm::commit(conn.sql()).await?;
        self.keep(conn);
        Ok(true)
    }

    async fn write_alone(&mut self, turn: &mut dyn Turn) -> sqlx::Result<()> {
        let mut conn = self.begin(BEGIN).await?;
        if let Err(error) = turn.run(conn.sql()).await {
            self.undo(conn).await;
            return Err(error);
        }
        Tm::commit(conn.sql()).await?;
        self.keep(conn);
        Ok(())
    }

    /// An error may have ended the transaction already; then the rollback fails too, and the connection closes.
    async fn undo(&mut self, mut conn: Conn) {
        if Tm::rollback(conn.sql()).await.is_ok() {
            self.keep(conn);
        }
    }

    /// Keeps the connection for the next turn, if it is outside any transaction; otherwise it closes here.
    fn keep(&mut self, conn: Conn) {
        if conn.depth() == 0 {
            self.idle = Some(conn);
        }
    }
}
