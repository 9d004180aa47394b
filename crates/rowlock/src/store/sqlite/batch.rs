//! A transaction that several handlers share, sealed by the commit hook of its connection.

use sqlx::Sqlite;

use super::{SqliteStore, now_us, room::Held, settle, writer::Lent};
use crate::{
    error::Doing,
    lease::Token,
    store::{
        Fut, Isolation, Room, Settlement, Timing,
        batch::{Batching, Parted, SettledShared},
    },
};

impl Batching for Sqlite {
    fn begin_shared<'a>(store: &'a SqliteStore, marker: &'a Token, timing: Timing, level: Isolation) -> Fut<'a, Held> {
        Box::pin(async move {
            let mut held = Sqlite::begin(store, marker, timing, level).await?;
            if let Some(lent) = held.lent() {
                lent.seal();
            }
            Ok(held)
        })
    }

    fn part<'a>(_store: &'a SqliteStore, held: &'a mut Held, keep: bool, more: bool) -> Fut<'a, Parted> {
        let end = match (keep, more) {
            (true, true) => "release savepoint rowlock; savepoint rowlock",
            (true, false) => "release savepoint rowlock",
            (false, _) => "rollback to savepoint rowlock",
        };
        Box::pin(async move {
            let Some(lent) = held.lent().filter(|lent| !ended_by_hand(lent)) else {
                return Ok(Parted::NotOurs);
            };
            match sqlx::raw_sql(end).execute(lent.sql()).await {
                // A nested transaction that user code forgot about is still open, for sqlx.
                Ok(_) if lent.depth() != 1 => Ok(Parted::NotOurs),
                Ok(_) => Ok(Parted::Fine),
                Err(e) if keep && no_savepoint(&e) => Ok(Parted::NotOurs),
                Err(e) => Err(e).doing("begin a batch"),
            }
        })
    }

    fn settle_shared<'a>(
        store: &'a SqliteStore,
        held: &'a mut Held,
        _marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared> {
        Box::pin(async move {
            let Some(lent) = held.lent().filter(|lent| !ended_by_hand(lent) && lent.depth() == 1) else {
                return Ok(SettledShared::NotOurs);
            };
            let settled = settle::settle(lent.sql(), now_us(&store.inner.clock), batch).await;
            let (held, woken) = settled.doing("settle")??;
            let holds: Vec<bool> = batch.iter().map(|s| held.contains(&s.token)).collect();
            Ok(match holds.iter().all(|held| *held) {
                true => SettledShared::Applied { woken },
                false => SettledShared::Lost(holds),
            })
        })
    }

    /// The connection closes, and the writer opens another: this is rare.
    fn undo(_store: &SqliteStore, held: Held) -> Fut<'_, ()> {
        drop(held);
        Box::pin(async { Ok(()) })
    }
}

/// Whether user code sent a commit, in vain or not.
fn ended_by_hand(lent: &Lent) -> bool {
    lent.committed_by_user() || lent.seal_met()
}

fn no_savepoint(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|e| e.message().contains("no such savepoint"))
}
