//! The check of the invariants on PostgreSQL.
//!
//! Its statements look rows up by scalar subqueries and by lateral subqueries with a limit. The planner cannot turn
//! these into joins. If the statistics wrongly say that a table is empty, a join would read the whole table for every
//! row.

use std::time::Duration;

use sqlx::SqlStr;
use sqlx_core::transaction::TransactionManager;
use tokio::time::Instant;

use crate::store::postgres::{Inner, Pm, conns::Lent, sql::Sql};
use crate::{
    error::{Doing, Result, sqlstate},
    observe::{CheckView, Invariant, Seen, VerifyLimits},
    store::rows::Noun,
};

pub const DOING: &str = "verify";

/// The time besides the checks themselves: connecting, and waiting for a lock on the log.
const MARGIN: Duration = Duration::from_secs(30);

/// How long all checks may take together.
pub fn limit(limits: VerifyLimits) -> Duration {
    let checks = u32::try_from(Invariant::ALL.len()).unwrap_or(u32::MAX);
    limits.time * checks + MARGIN
}

pub async fn all(inner: &Inner, limits: VerifyLimits) -> Result<Vec<CheckView>> {
    // The lock comes before the snapshot, which the first query takes. Otherwise upkeep could drop a partition between
    // the two: the partition would be missing although its jobs are visible. Every reader takes this lock.
    let begin = format!(
        "begin isolation level repeatable read read only; set local statement_timeout = {}; \
         lock table {}.outcome in access share mode; savepoint rowlock",
        limits.time.as_millis(),
        inner.sql.schema
    );
    let mut lent = inner.engine.begin(begin).await?;
    let mut checks = Vec::with_capacity(Invariant::ALL.len());
    for invariant in Invariant::ALL {
        let start = Instant::now();
        let seen = one(inner, &mut lent, invariant, limits).await.doing(DOING)?;
        let took = start.elapsed();
        checks.push(match seen {
            Some(seen) => CheckView::seen(invariant, seen, took),
            None => CheckView::unfinished(invariant, took),
        });
    }
    Pm::commit(lent.pg()).await.doing(DOING)?;
    lent.give_back();
    Ok(checks)
}

/// `None` when the statement exceeded its time limit; the snapshot stays.
async fn one(inner: &Inner, lent: &mut Lent, invariant: Invariant, limits: VerifyLimits) -> sqlx::Result<Option<Seen>> {
    let (text, takes) = statement(&inner.sql, invariant);
    let mut query = inner.query(text).bind(limits.shown);
    if takes >= Takes::Rows {
        query = query.bind(limits.rows);
    }
    if takes >= Takes::Now {
        query = query.bind(inner.now());
    }
    match query.fetch_one(lent.pg()).await {
        Ok(row) => Ok(Some(Seen::of(&row)?)),
        Err(error) if sqlstate(&error).as_deref() == Some("57014") => {
            let back = sqlx::raw_sql("rollback to savepoint rowlock");
            back.execute(lent.pg()).await?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The parameters of a statement; each variant includes the earlier ones.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Takes {
    Shown,
    Rows,
    Now,
}

fn statement(sql: &Sql, invariant: Invariant) -> (&SqlStr, Takes) {
    match invariant {
        Invariant::Schema => (&sql.verify_schema, Takes::Shown),
        Invariant::Indexes => (&sql.verify_indexes, Takes::Shown),
        Invariant::Places => (&sql.verify_places, Takes::Rows),
        Invariant::Bodies => (&sql.verify_bodies, Takes::Rows),
        Invariant::Uids => (&sql.verify_uids, Takes::Rows),
        Invariant::Outcomes => (&sql.verify_outcomes, Takes::Rows),
        Invariant::Attempts => (&sql.verify_attempts, Takes::Rows),
        Invariant::Endings => (&sql.verify_endings, Takes::Rows),
        Invariant::Stands => (&sql.verify_stands, Takes::Rows),
        Invariant::Finished => (&sql.verify_finished, Takes::Rows),
        Invariant::Owners => (&sql.verify_owners, Takes::Rows),
        Invariant::Effects => (&sql.verify_effects, Takes::Rows),
        Invariant::Keys => (&sql.verify_keys, Takes::Rows),
        Invariant::Ledger => (&sql.verify_ledger, Takes::Rows),
        Invariant::Leases => (&sql.verify_leases, Takes::Now),
        Invariant::Waits => (&sql.verify_waits, Takes::Now),
        Invariant::Groups => (&sql.verify_groups, Takes::Now),
    }
}
