//! The one writer of a store: whoever wants to write asks for a turn, and turns are taken in the order asked.
//!
//! The writer lives on a thread of its own, so a turn that has begun never depends on anybody's runtime being polled:
//! a handler that blocks its executor cannot leave the database locked half-way through a claim, and a caller that
//! gives up does not cut a transaction in two. It also makes the store usable from any runtime.
//!
//! Turns that wait at the same moment share one transaction and so one sync to disk, each under a savepoint of its
//! own. Nobody is answered before that transaction committed. A handler gets the connection itself, alone, and the
//! writer waits until it comes back; when it does not come back it was closed, and the next turn opens another.

use std::{
    future::Future,
    pin::Pin,
    sync::{LazyLock, OnceLock},
    time::Duration,
};

use sqlx::{SqlSafeStr, SqliteConnection, sqlite::SqliteTransactionManager as Tm};
use sqlx_core::transaction::TransactionManager;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};

use super::{
    conns::{Conn, Opening},
    now_us, refused,
};
use crate::{
    error::{Doing, Result},
    store::Clock,
};

/// Turns that share one commit at most.
const TURNS_MAX: usize = 64;

/// What a turn does with the connection, at the time it is given.
pub type Work<'c, T> = Pin<Box<dyn Future<Output = sqlx::Result<T>> + Send + 'c>>;

/// The thread that all writers of the process live on. It only waits and passes on: SQLite itself runs on sqlx's
/// threads, one per connection.
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
    /// Unbounded, but never longer than the number of callers that wait.
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

    /// Runs `work` in a transaction that holds the write lock and returns once it committed. An error does not say
    /// that nothing happened. Cancel-safe: given up before its turn it does not happen, after that it ends on its own.
    pub async fn write<T, W>(&self, doing: &'static str, limit: Duration, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection, i64) -> Work<'c, T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let turn = Pending {
            work: Some(work),
            value: None,
            clock: self.clock.clone(),
            reply,
        };
        self.ask(Ask::Write(Box::new(turn))).doing(doing)?;
        self.within(limit, answer).await.doing(doing)
    }

    /// Hands the connection out, in a transaction that holds the write lock and under the savepoint `rowlock`.
    pub async fn lend(&self, limit: Duration) -> Result<Lent> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Lend(reply)).doing("begin")?;
        self.within(limit, answer).await.doing("begin")
    }

    fn ask(&self, ask: Ask) -> sqlx::Result<()> {
        let thread = THREAD.as_ref().map_err(|e| sqlx::Error::Io(std::io::Error::new(e.kind(), e.to_string())))?;
        let asks = self.asks.get_or_init(|| {
            let (asks, asked) = mpsc::unbounded_channel();
            let desk = Desk {
                opening: self.opening.clone(),
                idle: None,
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

/// One asker's part in a transaction that others may share.
trait Turn: Send {
    /// Nobody waits for it any more.
    fn given_up(&self) -> bool;
    fn run<'c>(&'c mut self, sql: &'c mut SqliteConnection) -> Work<'c, ()>;
    /// Answers, now that the fate of the transaction is known.
    fn end(self: Box<Self>, fate: sqlx::Result<()>);
}

struct Pending<T, W> {
    work: Option<W>,
    value: Option<T>,
    clock: Clock,
    reply: oneshot::Sender<sqlx::Result<T>>,
}

impl<T, W> Turn for Pending<T, W>
where
    T: Send + 'static,
    W: for<'c> FnOnce(&'c mut SqliteConnection, i64) -> Work<'c, T> + Send + 'static,
{
    fn given_up(&self) -> bool {
        self.reply.is_closed()
    }

    fn run<'c>(&'c mut self, sql: &'c mut SqliteConnection) -> Work<'c, ()> {
        Box::pin(async move {
            if let Some(work) = self.work.take() {
                // The clock is read here, with the write lock held: a turn may have waited for long.
                self.value = Some(work(sql, now_us(&self.clock)).await?);
            }
            Ok(())
        })
    }

    fn end(self: Box<Self>, fate: sqlx::Result<()>) {
        let Pending { value, reply, .. } = *self;
        // An asker that went away was served all the same: it will look up what happened.
        let _ = reply.send(fate.and_then(|()| value.ok_or(sqlx::Error::WorkerCrashed)));
    }
}

/// A handler's hold on the writer. Dropped, the connection closes, SQLite rolls back, and the next turn begins.
pub struct Lent {
    conn: Conn,
    home: oneshot::Sender<End>,
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

    pub fn depth(&self) -> usize {
        self.conn.depth()
    }

    /// Commits on the writer's thread, so that the next turn need not wait for this caller to be polled.
    pub async fn commit(self) -> sqlx::Result<()> {
        let (reply, answer) = oneshot::channel();
        let end = End { conn: self.conn, reply };
        self.home.send(end).map_err(|_| sqlx::Error::WorkerCrashed)?;
        answer.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

/// The writer's side: it owns the connection whenever nobody has borrowed it.
struct Desk {
    opening: Opening,
    idle: Option<Conn>,
}

impl Desk {
    async fn serve(mut self, mut asked: mpsc::UnboundedReceiver<Ask>) {
        let mut ahead = None;
        loop {
            let ask = match ahead.take() {
                Some(ask) => ask,
                None => match asked.recv().await {
                    Some(ask) => ask,
                    None => return,
                },
            };
            match ask {
                Ask::Lend(reply) => self.lend(reply).await,
                Ask::Write(first) => {
                    let mut turns = vec![first];
                    while turns.len() < TURNS_MAX
                        && let Ok(next) = asked.try_recv()
                    {
                        match next {
                            Ask::Write(turn) => turns.push(turn),
                            other => {
                                ahead = Some(other);
                                break;
                            }
                        }
                    }
                    turns.retain(|t| !t.given_up());
                    self.write(turns).await;
                }
            }
        }
    }

    /// The connection, in a transaction that holds the write lock.
    async fn begin(&mut self) -> sqlx::Result<Conn> {
        let mut conn = match self.idle.take() {
            Some(conn) => conn,
            None => self.opening.writer().await?,
        };
        conn.wait_for_lock(self.opening.lock_ms()).await?;
        match Tm::begin(conn.sql(), Some("begin immediate".into_sql_str())).await {
            Ok(()) => Ok(conn),
            Err(error) => {
                // Refused for the lock's sake, nothing began and the connection is as good as before.
                if refused::is_busy(&error) && conn.depth() == 0 {
                    self.idle = Some(conn);
                }
                Err(error)
            }
        }
    }

    async fn lend(&mut self, reply: oneshot::Sender<sqlx::Result<Lent>>) {
        if reply.is_closed() {
            return;
        }
        let begun = async {
            let mut conn = self.begin().await?;
            sqlx::raw_sql("savepoint rowlock").execute(conn.sql()).await?;
            Ok(conn)
        };
        let conn = match begun.await {
            Ok(conn) => conn,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let (home, back) = oneshot::channel();
        // An asker that went away drops what it was sent, and the connection with it.
        let _ = reply.send(Ok(Lent { conn, home }));
        if let Ok(End { mut conn, reply }) = back.await {
            let committed = Tm::commit(conn.sql()).await;
            if committed.is_ok() {
                self.keep(conn);
            }
            let _ = reply.send(committed);
        }
    }

    async fn write(&mut self, mut turns: Vec<Box<dyn Turn>>) {
        if turns.is_empty() {
            return;
        }
        let conn = match self.begin().await {
            Ok(conn) => conn,
            Err(error) => return end_all(turns, &error),
        };
        let fates = if turns.len() == 1 {
            self.write_alone(conn, &mut turns[0]).await.map(|fate| vec![fate])
        } else {
            self.write_together(conn, &mut turns).await
        };
        match fates {
            Ok(fates) => turns.into_iter().zip(fates).for_each(|(turn, fate)| turn.end(fate)),
            Err(error) => end_all(turns, &error),
        }
    }

    async fn write_alone(&mut self, mut conn: Conn, turn: &mut Box<dyn Turn>) -> sqlx::Result<sqlx::Result<()>> {
        let fate = turn.run(conn.sql()).await;
        match fate {
            Ok(()) => Tm::commit(conn.sql()).await?,
            // On an error that ended the transaction already, this fails too and the connection closes.
            Err(_) if Tm::rollback(conn.sql()).await.is_err() => return Ok(fate),
            Err(_) => {}
        }
        self.keep(conn);
        Ok(fate)
    }

    /// Each turn's own fate, or the one error that undid them all.
    async fn write_together(
        &mut self,
        mut conn: Conn,
        turns: &mut [Box<dyn Turn>],
    ) -> sqlx::Result<Vec<sqlx::Result<()>>> {
        let mut fates = Vec::with_capacity(turns.len());
        for turn in turns {
            Tm::begin(conn.sql(), None).await?;
            let fate = turn.run(conn.sql()).await;
            match fate {
                Ok(()) => Tm::commit(conn.sql()).await?,
                Err(_) => Tm::rollback(conn.sql()).await?,
            }
            fates.push(fate);
        }
        Tm::commit(conn.sql()).await?;
        self.keep(conn);
        Ok(fates)
    }

    /// For the next turn, if it is outside any transaction; else it closes here.
    fn keep(&mut self, conn: Conn) {
        if conn.depth() == 0 {
            self.idle = Some(conn);
        }
    }
}

fn end_all(turns: Vec<Box<dyn Turn>>, error: &sqlx::Error) {
    for turn in turns {
        turn.end(Err(refused::again(error)));
    }
}
