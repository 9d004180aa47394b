//! A transaction that several handlers share, sealed by the commit hook of its connection.

use super::{in_tx::Held, settle, writer::Lent};
use crate::{
    error::{Doing, Result},
    store::{
        Settlement,
        batch::{Parted, SettledShared},
    },
};

pub async fn part(held: &mut Held, keep: bool, more: bool) -> Result<Parted> {
    let end = match (keep, more) {
        (true, true) => "release savepoint rowlock; savepoint rowlock",
        (true, false) => "release savepoint rowlock",
        (false, _) => "rollback to savepoint rowlock",
    };
    let doing = if keep { "begin a batch" } else { "roll back" };
    let Some(lent) = held.lent().filter(|lent| !ended_by_hand(lent)) else {
        return Ok(Parted::NotOurs);
    };
    match sqlx::raw_sql(end).execute(lent.sql()).await {
        // For sqlx, a nested transaction that user code did not end is still open.
        Ok(_) if lent.depth() != 1 => Ok(Parted::NotOurs),
        Ok(_) => Ok(Parted::Fine),
        Err(e) if keep && no_savepoint(&e) => Ok(Parted::NotOurs),
        Err(e) => Err(e).doing(doing),
    }
}

pub async fn settle_shared(held: &mut Held, now: i64, batch: &[Settlement]) -> Result<SettledShared> {
    let Some(lent) = held.lent().filter(|lent| !ended_by_hand(lent) && lent.depth() == 1) else {
        return Ok(SettledShared::NotOurs);
    };
    let (held, woken) = settle::settle(lent.sql(), now, batch).await.doing("settle")??;
    let holds: Vec<bool> = batch.iter().map(|s| held.contains(&s.token)).collect();
    Ok(match holds.iter().all(|held| *held) {
        true => SettledShared::Applied { woken },
        false => SettledShared::Lost(holds),
    })
}

/// Whether user code sent a commit, successful or not.
fn ended_by_hand(lent: &Lent) -> bool {
    lent.committed_by_user() || lent.seal_met()
}

fn no_savepoint(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|e| e.message().contains("no such savepoint"))
}
