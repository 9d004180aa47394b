//! The check of the invariants on SQLite.

use std::time::Instant;

use sqlx::sqlite::SqliteTransactionManager as Tm;
use sqlx_core::transaction::TransactionManager;

use crate::store::sqlite::{SqliteStore, conns::Reading, now_us, sql};
use crate::{
    error::{Doing, Result, sqlstate},
    observe::{CheckView, Invariant, Seen, VerifyLimits},
    store::rows::Noun,
};

const DOING: &str = "verify";

/// SQLITE_INTERRUPT
const INTERRUPTED: &str = "9";

pub async fn all(store: &SqliteStore, limits: VerifyLimits) -> Result<Vec<CheckView>> {
    let now = now_us(&store.inner.clock);
    let mut reading = store.inner.readers.acquire().await.doing(DOING)?;
    Tm::begin(reading.sql(), None).await.doing(DOING)?;
    let mut checks = Vec::with_capacity(Invariant::ALL.len());
    for invariant in Invariant::ALL {
        let start = Instant::now();
        reading.interrupt_at(Some(start + limits.time));
        let seen = one(&mut reading, invariant, limits, now).await;
        reading.interrupt_at(None);
        let took = start.elapsed();
        checks.push(match seen? {
            Some(seen) => CheckView::seen(invariant, seen, took),
            None => CheckView::unfinished(invariant, took),
        });
    }
    Tm::commit(reading.sql()).await.doing(DOING)?;
    reading.give_back();
    Ok(checks)
}

/// `None` when the statement exceeded its time limit. The snapshot stays, because the interrupted statement only reads.
async fn one(reading: &mut Reading, invariant: Invariant, limits: VerifyLimits, now: i64) -> Result<Option<Seen>> {
    let query = sqlx::query(statement(invariant))
        .bind(limits.shown)
        .bind(limits.rows)
        .bind(now);
    match query.fetch_one(reading.sql()).await {
        Ok(row) => Seen::of(&row).map(Some).doing(DOING),
        Err(error) if sqlstate(&error).as_deref() == Some(INTERRUPTED) => Ok(None),
        Err(error) => Err(error).doing(DOING),
    }
}

fn statement(invariant: Invariant) -> &'static str {
    match invariant {
        Invariant::Schema => sql::VERIFY_SCHEMA,
        Invariant::Indexes => sql::VERIFY_INDEXES,
        Invariant::Places => sql::VERIFY_PLACES,
        Invariant::Bodies => sql::VERIFY_BODIES,
        Invariant::Uids => sql::VERIFY_UIDS,
        Invariant::Outcomes => sql::VERIFY_OUTCOMES,
        Invariant::Attempts => sql::VERIFY_ATTEMPTS,
        Invariant::Endings => sql::VERIFY_ENDINGS,
        Invariant::Stands => sql::VERIFY_STANDS,
        Invariant::Finished => sql::VERIFY_FINISHED,
        Invariant::Owners => sql::VERIFY_OWNERS,
        Invariant::Effects => sql::VERIFY_EFFECTS,
        Invariant::Keys => sql::VERIFY_KEYS,
        Invariant::Ledger => sql::VERIFY_LEDGER,
        Invariant::Leases => sql::VERIFY_LEASES,
        Invariant::Waits => sql::VERIFY_WAITS,
        Invariant::Groups => sql::VERIFY_GROUPS,
    }
}
