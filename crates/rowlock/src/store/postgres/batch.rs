//! A transaction that several handlers share, sealed by a cursor that cannot outlive a commit.

use sqlx::AssertSqlSafe;
use sqlx_core::transaction::TransactionManager;

use super::{BY_KEY, Inner, PgStore, Pm, conns::Lent, opening, settle};
use crate::{
    error::{Doing, Result, sqlstate},
    lease::Token,
    store::{
        Fut, Opening, Settlement,
        batch::{Parted, SettledShared},
    },
};

/// The error text of a commit by user code.
const SEAL: &str = "a handler in a batch does not end its transaction";

/// Planner settings of the engine's own connections, for the settle that follows: a scan of all leases would read every
/// dead row. User code has finished, except for deferred triggers, which only lose a choice of plans.
const BY_INDEX: &str =
    "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/// The statements that begin a shared transaction.
pub fn begin_text(inner: &Inner, open: Opening) -> String {
    format!(
        "{}; set local rowlock_tx.seal = '{SEAL}'; {}; savepoint rowlock",
        opening(open),
        inner.sql.seal.as_str()
    )
}

impl PgStore {
    pub fn part<'a>(&'a self, held: &'a mut Lent, keep: bool, more: bool) -> Fut<'a, Parted> {
        let doing = if keep { "begin a batch" } else { "roll back" };
        let plans = if held.serializable { BY_KEY } else { BY_INDEX };
        let end = match (keep, more) {
            (true, true) => "release savepoint rowlock; savepoint rowlock".to_owned(),
            (true, false) => format!("release savepoint rowlock; close rowlock_seal; {plans}"),
            (false, true) => "rollback to savepoint rowlock".to_owned(),
            (false, false) => format!("rollback to savepoint rowlock; close rowlock_seal; {plans}"),
        };
        self.within(self.0.timing.lock, doing, async move {
            match sqlx::raw_sql(AssertSqlSafe(end)).execute(held.pg()).await {
                // For sqlx, a nested transaction that user code did not end is still open.
                Ok(_) if Pm::get_transaction_depth(held.pg()) != 1 => Ok(Parted::NotOurs),
                Ok(_) => Ok(Parted::Fine),
                Err(e) => match sqlstate(&e).as_deref() {
                    // Not in a transaction, or in a transaction without our savepoint.
                    Some("25P01" | "3B001") => Ok(Parted::NotOurs),
                    Some("25P02") if keep => Ok(Parted::Spoilt(crate::Error::Database {
                        doing: "settle",
                        source: e,
                    })),
                    _ => Err(e).doing(doing),
                },
            }
        })
    }

    pub fn settle_shared<'a>(
        &'a self,
        held: &'a mut Lent,
        marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared> {
        Box::pin(async move {
            if Pm::get_transaction_depth(held.pg()) != 1 {
                return Ok(SettledShared::NotOurs);
            }
            settle_all(self, held, &marker.to_string(), batch).await
        })
    }
}

async fn settle_all(store: &PgStore, held: &mut Lent, marker: &str, batch: &[Settlement]) -> Result<SettledShared> {
    let settle::Written { applied, mut woken } =
        match settle::write_ends(&store.0, held.pg(), batch, Some(marker)).await {
            Ok(written) => written,
            Err(error) if settle::is_not_ours(&error) => return Ok(SettledShared::NotOurs),
            Err(error) => return Err(error),
        };
    if applied.iter().any(|applied| !applied) {
        return Ok(SettledShared::Lost(applied));
    }
    woken.extend(settle::write_next(&store.0, held.pg(), batch.iter()).await?);
    Ok(SettledShared::Applied { woken })
}
