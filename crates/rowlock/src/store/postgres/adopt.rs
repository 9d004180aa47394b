//! Methods on a table of the user's: inspect, migrate, claim, renew, settle, recover.
//!
//! The statements are templates under `sql/postgres/adopt`, filled with the table's quoted names when the table is
//! opened. Every write to a claimed row has the claim's token in its condition; a token that matches nothing is a
//! value, not an error. A retired row gets its case in the same commit.

mod claim;
mod effect;
mod inspect;
mod migration;
mod recover;
mod settle;

use std::{sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

pub use self::{
    claim::{Asked, ClaimedRow, Probed},
    effect::{FoundCall, call_prefix},
    recover::{RECOVER_MAX, Stale},
    settle::{Ending, RowEnd, Settled},
};
use super::{PgStore, sql::Templates};
use crate::{
    error::{Doing, Error, Result, sqlstate},
    store::Fut,
    table::{Adoptee, Columns, Inspection, RetiredRow, TableName},
};

/// A table whose rows can be run as jobs, with its statements.
pub struct AdoptedTable {
    pub adoptee: Adoptee,
    /// The queue under which its cases and metrics appear.
    pub queue: Arc<str>,
    /// The keys of its effects are made from this.
    pub identity: Uuid,
    sql: Templates,
}

/// The token of a row's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowToken {
    /// The primary key, as text.
    pub id: String,
    pub token: Uuid,
}

/// Rows that the table refused to change, each with its error.
pub type Refused = Vec<(String, Error)>;

/// Whether a constraint or a trigger of the user's refused: a data or integrity error, or one raised in a function. A
/// retry would fail again.
pub fn refused(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.len() == 5 && matches!(code.get(..2), Some("22" | "23" | "P0")))
}

/// Deferred constraints are checked with each statement, instead of at the commit for all rows together.
async fn at_once(tx: &mut PgConnection) -> sqlx::Result<()> {
    let at_once = sqlx::raw_sql("set constraints all immediate");
    at_once.execute(tx).await.map(drop)
}

impl PgStore {
    /// Reads a table's definition; changes nothing.
    pub fn inspect_table<'a>(&'a self, table: &'a TableName, columns: &'a Columns) -> Fut<'a, Inspection> {
        const DOING: &str = "inspect table";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let (inspection, _) = inspect::inspect(&self.0, lent.pg(), table, columns).await?;
            lent.end(DOING).await?;
            Ok(inspection)
        })
    }

    /// Runs the missing statements one by one. What ran before an error stays, and the next call continues from there.
    pub fn migrate_table<'a>(&'a self, table: &'a TableName, columns: &'a Columns) -> Fut<'a, Vec<String>> {
        const DOING: &str = "migrate table";
        self.within(Duration::from_secs(24 * 3600), DOING, async move {
            let inspection = self.inspect_table(table, columns).await?;
            if let Some(problem) = inspection.problems.first() {
                return Err(Error::Conflict(format!(
                    "{} cannot be adopted: {problem}",
                    inspection.table
                )));
            }
            if !self.0.named() && !inspection.migration.is_empty() {
                return Err(Error::Config(
                    "cannot migrate a table through a pooler; connect to the server itself, without pgbouncer=true"
                        .into(),
                ));
            }
            // The statements change settings, so this connection is not returned to the idle list.
            let mut lent = self.0.engine.take().await.doing(DOING)?;
            for statement in &inspection.migration {
                let run = sqlx::raw_sql(AssertSqlSafe(statement.clone()));
                run.execute(lent.pg()).await.doing(DOING)?;
            }
            Ok(inspection.migration)
        })
    }

    /// The table with its statements. Refuses a table that is not ready, with what the table needs.
    pub fn open_table<'a>(&'a self, table: &'a TableName, columns: &'a Columns) -> Fut<'a, AdoptedTable> {
        const DOING: &str = "open table";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let (seen, adoptee) = inspect::inspect(&self.0, lent.pg(), table, columns).await?;
            let adoptee = match (adoptee, seen.problems.first()) {
                (Some(adoptee), _) if seen.migration.is_empty() => adoptee,
                (_, Some(problem)) => {
                    return Err(Error::Conflict(format!("{} cannot be adopted: {problem}", seen.table)));
                }
                _ => return Err(needs_migration(&seen)),
            };
            let key = format!("adopted table {}", adoptee.table.exact());
            sqlx::query(self.0.sql.adopt_identity.clone())
                .persistent(false)
                .bind(&key)
                .bind(Uuid::now_v7().to_string())
                .execute(lent.pg())
                .await
                .doing(DOING)?;
            let stored = sqlx::query(self.0.sql.once_read.clone())
                .persistent(false)
                .bind(&key)
                .bind(None::<jiff_sqlx::Timestamp>)
                .fetch_one(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            let identity: Option<String> = stored.try_get("answer").doing(DOING)?;
            let identity = identity.and_then(|json| serde_json::from_str(&json).ok());
            let Some(identity) = identity else {
                return Err(Error::Conflict(format!(
                    "the ledger entry {key:?} was not written by Rowlock; remove it"
                )));
            };
            Ok(AdoptedTable {
                sql: Templates::new(&self.0.sql.schema, |template| adoptee.fill(template)),
                queue: adoptee.table.queue().into(),
                identity,
                adoptee,
            })
        })
    }

    /// Renews these claims. Returns the tokens that still hold, each with whether its row was free to be written.
    pub fn beat_rows<'a>(&'a self, table: &'a AdoptedTable, rows: &'a [RowToken]) -> Fut<'a, Vec<(Uuid, bool)>> {
        const DOING: &str = "renew claims";
        self.within(self.0.timing.lock, DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let held: Vec<(Uuid, bool)> = sqlx::query_as(table.sql.adopt_beat.clone())
                .persistent(self.0.named())
                .bind(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.token).collect::<Vec<_>>())
                .bind(self.0.now())
                .fetch_all(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            Ok(held)
        })
    }

    /// Renews one claim, after waiting for another transaction that has the row locked. `false` if the row is still
    /// locked after `wait`, or if the claim is lost.
    pub fn beat_row_in_turn<'a>(&'a self, table: &'a AdoptedTable, row: &'a RowToken, wait: Duration) -> Fut<'a, bool> {
        const DOING: &str = "renew claim";
        self.within(self.0.timing.lock, DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let mut tx = lent.pg().begin().await.doing(DOING)?;
            let limit = format!("set local lock_timeout = {}", wait.as_millis().max(1));
            let limit = sqlx::raw_sql(AssertSqlSafe(limit));
            limit.execute(&mut *tx).await.doing(DOING)?;
            let renewed = sqlx::query(table.sql.adopt_beat_wait.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(self.0.now())
                .fetch_optional(&mut *tx)
                .await;
            let renewed = match renewed {
                Err(error) if sqlstate(&error).as_deref() == Some("55P03") => {
                    tx.rollback().await.doing(DOING)?;
                    false
                }
                renewed => {
                    let renewed = renewed.doing(DOING)?.is_some();
                    tx.commit().await.doing(DOING)?;
                    renewed
                }
            };
            lent.end(DOING).await?;
            Ok(renewed)
        })
    }

    /// Puts a retired row back, in the transaction of the job that represents the row. `false` if the row has changed
    /// since it was retired. External calls of the row that were in doubt are then recorded as not made.
    pub async fn reopen_row(&self, table: &AdoptedTable, pg: &mut PgConnection, retired: &RetiredRow) -> Result<bool> {
        const DOING: &str = "reopen row";
        let put_back = sqlx::query(table.sql.adopt_reopen.clone())
            .persistent(self.0.named())
            .bind(&retired.id)
            .bind(jiff_sqlx::ToSqlx::to_sqlx(retired.retired_at))
            .bind(self.0.now())
            .fetch_optional(&mut *pg)
            .await
            .doing(DOING)?;
        if put_back.is_some() && !retired.doubts.is_empty() {
            let undo = sqlx::query(self.0.sql.adopt_effect_undo.clone())
                .persistent(self.0.named())
                .bind(&retired.doubts);
            undo.execute(pg).await.doing(DOING)?;
        }
        Ok(put_back.is_some())
    }
}

/// The error contains what to do.
fn needs_migration(seen: &Inspection) -> Error {
    let due = seen
        .columns
        .first()
        .map(|column| column.column.as_str())
        .unwrap_or_default();
    Error::Config(format!(
        "{} needs a migration first; run `rowlock adopt {} --due {due} --apply`, or these statements:\n{};",
        seen.table,
        seen.table,
        seen.migration.join(";\n")
    ))
}
