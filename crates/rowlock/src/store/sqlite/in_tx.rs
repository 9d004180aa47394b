//! Methods on a typed connection: the caller's own, or the writer that a handler holds.

use std::ops::{Deref, DerefMut};

use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, sqlite::SqliteTransactionManager as Tm};
use sqlx_core::transaction::TransactionManager;

use super::{SqliteStore, batch, conns::Reading, enqueue, guard, ledger, now_us, settle, sql, waits, writer::Lent};
use crate::{
    error::{Doing, Result},
    job::Draft,
    key::Enqueued,
    lease::Token,
    store::{
        Fut, InTx, Open, SettledIn, Settlement, TxEnd,
        batch::{Parted, SettledShared},
        guard::GuardAsk,
        ledger::{Ask, Entry, Mine, Taken},
        transition::Move,
    },
};

/// A connection that a handler holds, inside a transaction. If it is dropped, it closes and SQLite rolls back.
pub struct Held(Hold);

enum Hold {
    Writing(Lent),
    Reading(Reading),
}

impl Held {
    /// The writer, unless this connection only reads.
    pub fn lent(&mut self) -> Option<&mut Lent> {
        match &mut self.0 {
            Hold::Writing(lent) => Some(lent),
            Hold::Reading(_) => None,
        }
    }
}

impl Deref for Held {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        match &self.0 {
            Hold::Writing(lent) => lent.sql_ref(),
            Hold::Reading(reading) => reading.sql_ref(),
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        match &mut self.0 {
            Hold::Writing(lent) => lent.sql(),
            Hold::Reading(reading) => reading.sql(),
        }
    }
}

impl InTx for Sqlite {
    type Store = SqliteStore;
    type Held = Held;

    const BEGIN: &'static str = "begin immediate";
    /// A handler's transaction holds the only write lock, and every heartbeat waits behind it.
    const EXCLUSIVE: bool = true;

    /// There is no server process to end; the number identifies the loan, to check whether user code committed on it.
    fn holder(held: &Held) -> i64 {
        match &held.0 {
            Hold::Writing(lent) => lent.number(),
            Hold::Reading(_) => i64::MAX,
        }
    }

    fn begin(store: &SqliteStore, what: Open) -> Fut<'_, Held> {
        Box::pin(async move {
            let (opening, shared) = match what {
                Open::Handler(opening) => (opening, false),
                Open::Shared(opening) => (opening, true),
                Open::Read(_) => {
                    let mut reading = store.inner.readers.acquire().await.doing("begin read")?;
                    Tm::begin(reading.sql(), None).await.doing("begin read")?;
                    return Ok(Held(Hold::Reading(reading)));
                }
            };
            let limit = store.limit().max(opening.timing.lease);
            let lent = store.inner.writer.lend(limit).await?;
            if shared {
                lent.seal();
            }
            Ok(Held(Hold::Writing(lent)))
        })
    }

    fn part<'a>(_store: &'a SqliteStore, held: &'a mut Held, keep: bool, more: bool) -> Fut<'a, Parted> {
        Box::pin(batch::part(held, keep, more))
    }

    fn settle_in<'a>(store: &'a SqliteStore, held: &'a mut Held, settlement: &'a Settlement) -> Fut<'a, SettledIn> {
        Box::pin(async {
            let Hold::Writing(lent) = &mut held.0 else {
                return Ok(SettledIn::NotOurs);
            };
            if !still_ours(lent).await? {
                return Ok(SettledIn::NotOurs);
            }
            let now = now_us(&store.inner.clock);
            let (held, woken) = settle::settle(lent.sql(), now, std::slice::from_ref(settlement))
                .await
                .doing("settle")??;
            Ok(match held.is_empty() {
                true => SettledIn::LeaseLost,
                false => SettledIn::Applied { woken },
            })
        })
    }

    fn settle_shared<'a>(
        store: &'a SqliteStore,
        held: &'a mut Held,
        _marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared> {
        Box::pin(batch::settle_shared(held, now_us(&store.inner.clock), batch))
    }

    /// After a rollback the connection closes, and the writer opens another; rollbacks are rare.
    fn end(_store: &SqliteStore, held: Held, how: TxEnd) -> Fut<'_, ()> {
        Box::pin(async move {
            match (held.0, how) {
                (Hold::Writing(lent), TxEnd::Commit) => lent.commit().await.doing("commit"),
                (Hold::Reading(mut reading), TxEnd::Commit) => {
                    Tm::commit(reading.sql()).await.doing("end read")?;
                    reading.give_back();
                    Ok(())
                }
                (_, TxEnd::RollBack) => Ok(()),
            }
        })
    }

    /// SQLite sends no notification with a commit; listeners see that the file changed.
    fn enqueue_in<'a>(
        store: &'a SqliteStore,
        conn: &'a mut SqliteConnection,
        drafts: &'a [Draft],
    ) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            let put = enqueue::enqueue_in(conn, now_us(&store.inner.clock), drafts).await;
            Ok(store.answered(put, "enqueue")??)
        })
    }

    /// As for [`InTx::enqueue_in`], no notification is sent with the commit.
    fn complete_in<'a>(
        store: &'a SqliteStore,
        conn: &'a mut SqliteConnection,
        name: &'a str,
        answer: Option<&'a str>,
    ) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let moved = waits::complete_whole(conn, now_us(&store.inner.clock), name, answer).await;
            let moved = store.answered(moved, "complete")?;
            Ok(moved.and_then(|queues| i64::try_from(queues.len()).ok()))
        })
    }

    fn answer_in<'a>(_store: &'a SqliteStore, conn: &'a mut SqliteConnection, id: i64) -> Fut<'a, Option<String>> {
        Box::pin(async move {
            let read = sqlx::query_scalar(sql::ANSWER).bind(id);
            let found: Option<Option<String>> = read.fetch_optional(conn).await.doing("read answer")?;
            Ok(found.flatten())
        })
    }

    fn guard<'a>(store: &'a SqliteStore, conn: &'a mut SqliteConnection, ask: GuardAsk<'a>) -> Fut<'a, Option<i64>> {
        let doing = match ask {
            GuardAsk::Lock(_) => "guard",
            GuardAsk::Read(_) => "read version",
            GuardAsk::Raise { .. } => "raise version",
        };
        Box::pin(async move {
            let answer = guard::ask(conn, now_us(&store.inner.clock), ask).await;
            store.answered(answer, doing)
        })
    }

    fn transition<'a>(store: &'a SqliteStore, conn: &'a mut SqliteConnection, step: &'a Move) -> Fut<'a, u64> {
        Box::pin(async move { store.answered(guard::transition(conn, step).await, "transition") })
    }

    fn once_take<'a>(store: &'a SqliteStore, conn: &'a mut SqliteConnection, ask: &'a Ask) -> Fut<'a, Taken> {
        Box::pin(async move {
            let taken = ledger::take(conn, now_us(&store.inner.clock), ask).await;
            store.answered(taken, "once")
        })
    }

    fn once_store<'a>(
        store: &'a SqliteStore,
        conn: &'a mut SqliteConnection,
        key: &'a str,
        mine: Mine,
        answer: &'a str,
    ) -> Fut<'a, bool> {
        Box::pin(async move { store.answered(ledger::store(conn, key, mine, answer).await, "once") })
    }

    fn once_read<'a>(store: &'a SqliteStore, conn: &'a mut SqliteConnection, key: &'a str) -> Fut<'a, Option<Entry>> {
        Box::pin(async move {
            let found = ledger::read(conn, now_us(&store.inner.clock), key).await;
            store.answered(found, "once")
        })
    }

    fn once_savepoint(conn: &mut SqliteConnection, no: u64, back: bool) -> Fut<'_, ()> {
        let text = AssertSqlSafe(crate::store::ledger::savepoint(no, back));
        Box::pin(async { sqlx::raw_sql(text).execute(conn).await.map(drop).doing("once") })
    }
}

/// Whether this is the transaction that the engine opened. If user code ended that transaction in any way, the
/// savepoint from its beginning is gone. The depth is read after the release: by then sqlx has rolled back any
/// savepoint that user code dropped.
async fn still_ours(lent: &mut Lent) -> Result<bool> {
    match sqlx::raw_sql("release savepoint rowlock").execute(lent.sql()).await {
        Ok(_) => Ok(lent.depth() == 1),
        Err(error) => {
            let gone = error
                .as_database_error()
                .is_some_and(|e| e.message().contains("no such savepoint"));
            if gone { Ok(false) } else { Err(error).doing("settle") }
        }
    }
}
