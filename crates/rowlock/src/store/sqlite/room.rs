//! What needs a typed connection: the caller's own, or the writer in a handler's hands.

use std::time::Duration;

use sqlx::{Sqlite, SqliteConnection, sqlite::SqliteTransactionManager as Tm};
use sqlx_core::transaction::TransactionManager;

use super::{SqliteStore, conns::Reading, enqueue, now_us, refused, settle, writer::Lent};
use crate::{
    error::{Doing, Error, Result},
    job::Draft,
    key::Enqueued,
    lease::Token,
    store::{Fut, Isolation, Room, SettledIn, Settlement, Timing},
};

/// A connection in a handler's hands, inside a transaction. Dropped, it closes and SQLite rolls back.
pub struct Held(Hold);

enum Hold {
    Writing(Lent),
    Reading(Reading),
}

impl Held {
    /// The writer, unless this only reads.
    pub fn lent(&mut self) -> Option<&mut Lent> {
        match &mut self.0 {
            Hold::Writing(lent) => Some(lent),
            Hold::Reading(_) => None,
        }
    }

    fn sql(&mut self) -> &mut SqliteConnection {
        match &mut self.0 {
            Hold::Writing(lent) => lent.sql(),
            Hold::Reading(reading) => reading.sql(),
        }
    }
}

impl Room for Sqlite {
    type Store = SqliteStore;
    type Held = Held;

    /// A handler's transaction holds the only write lock, and every beat waits behind it.
    fn cap(timing: Timing) -> Option<Duration> {
        Some(timing.lease / 3)
    }

    fn conn(held: &mut Held) -> &mut SqliteConnection {
        held.sql()
    }

    fn conn_ref(held: &Held) -> &SqliteConnection {
        match &held.0 {
            Hold::Writing(lent) => lent.sql_ref(),
            Hold::Reading(reading) => reading.sql_ref(),
        }
    }

    /// There is no backend to end; the number finds the loan, to ask whether user code committed on it.
    fn holder(held: &Held) -> i64 {
        match &held.0 {
            Hold::Writing(lent) => lent.number(),
            Hold::Reading(_) => i64::MAX,
        }
    }

    /// No wake travels with a commit in SQLite; listeners see that the file changed.
    fn enqueue_in<'a>(
        store: &'a SqliteStore,
        conn: &'a mut SqliteConnection,
        drafts: &'a [Draft],
    ) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            let put = enqueue::enqueue_in(conn, now_us(&store.inner.clock), drafts).await;
            let put = put
                .map_err(|e| refused::explained(e, &store.inner.opening.name()))
                .doing("enqueue");
            Ok(put.map_err(Error::answered)??)
        })
    }

    fn begin<'a>(store: &'a SqliteStore, _token: &'a Token, timing: Timing, _level: Isolation) -> Fut<'a, Held> {
        Box::pin(async move {
            let lent = store.inner.writer.lend(store.limit().max(timing.lease)).await?;
            Ok(Held(Hold::Writing(lent)))
        })
    }

    fn begin_read<'a>(store: &'a SqliteStore, _timing: Timing) -> Fut<'a, Held> {
        Box::pin(async {
            let mut reading = store.inner.readers.acquire().await.doing("begin read")?;
            Tm::begin(reading.sql(), None).await.doing("begin read")?;
            Ok(Held(Hold::Reading(reading)))
        })
    }

    fn end_read(_store: &SqliteStore, held: Held) -> Fut<'_, ()> {
        Box::pin(async move {
            let Hold::Reading(mut reading) = held.0 else {
                return Ok(());
            };
            Tm::commit(reading.sql()).await.doing("end read")?;
            reading.give_back();
            Ok(())
        })
    }

    fn back<'a>(_store: &'a SqliteStore, held: &'a mut Held) -> Fut<'a, bool> {
        Box::pin(async {
            let committed = match &held.0 {
                Hold::Writing(lent) => lent.committed_by_user(),
                Hold::Reading(_) => false,
            };
            if committed {
                return Ok(false);
            }
            // Without a commit, a savepoint that is gone went with a rollback, the user's or SQLite's own: an error here.
            sqlx::raw_sql("rollback to savepoint rowlock")
                .execute(held.sql())
                .await
                .doing("roll back")?;
            Ok(true)
        })
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

    fn commit(_store: &SqliteStore, held: Held) -> Fut<'_, ()> {
        Box::pin(async move {
            match held.0 {
                Hold::Writing(lent) => lent.commit().await.doing("commit"),
                Hold::Reading(_) => Err(sqlx::Error::BeginFailed).doing("commit"),
            }
        })
    }
}

/// Whether this is the transaction the engine opened. The savepoint made at its beginning goes with it, however user
/// code ended it. The depth is read after the release, by when sqlx has rolled back any savepoint that user code
/// dropped.
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
