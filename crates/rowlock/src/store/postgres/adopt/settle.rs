//! Ends the claim of a row: in its handler's transaction, or in a commit of the engine.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Connection, PgConnection, Row, postgres::PgRow};
use sqlx_core::transaction::TransactionManager;
use uuid::Uuid;

use super::{
    super::{Inner, PgStore, Pm, pooler, rows},
    AdoptedTable, RowToken, effect,
    recover::Recovered,
};
use crate::{
    error::{Doing, Error, Result},
    job::{Job, kind_no, queue_no},
    store::Fut,
    table::RetiredRow,
};

const DOING: &str = "settle row";

/// How a claimed row ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowEnd {
    /// Inactive: the row is finished.
    Done,
    /// As its handler left it, with all its attempts; the row's own due time decides when it runs again. `calls_of`
    /// names the row for the ledger if it may have made external calls: this commit ends them.
    Kept { calls_of: Option<Uuid> },
    /// Deleted in the commit of its handler's writes.
    Deleted,
    /// Back to due, not before this delay; the attempt counts or is given back.
    Back {
        counted: bool,
        delay: Duration,
        error: Option<String>,
    },
    /// Inactive, with a case; the attempt counts, or the handler gave up before the last attempt.
    Retired {
        counted: bool,
        error: String,
        /// Keys of external calls that are in doubt.
        doubts: Vec<String>,
    },
    /// Inactive on purpose, without its effect and without a case.
    Cancelled { error: String },
}

/// The answer to a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// Written; in a handler's transaction, it holds once the transaction commits.
    Applied,
    /// The token matched nothing.
    Lost,
    /// This is not the transaction that the engine opened: user code ended that transaction.
    NotOurs,
}

/// A row's end with everything that a statement needs.
pub struct Ending<'a> {
    pub row: &'a RowToken,
    pub end: &'a RowEnd,
    /// The marker of the handler's transaction, if this is that transaction.
    pub marker: Option<&'a str>,
}

/// A row that needs a case.
pub(super) struct Filed {
    id: String,
    retired_at: Timestamp,
    reason: String,
    doubts: Vec<String>,
}

impl PgStore {
    /// Ends a claim in the handler's own transaction.
    pub async fn settle_row_in(
        &self,
        table: &AdoptedTable,
        pg: &mut PgConnection,
        ending: Ending<'_>,
    ) -> Result<Settled> {
        let mut ours = Pm::get_transaction_depth(pg) == 1;
        if !self.0.named() {
            ours &= pooler::in_transaction(pg).await.doing(DOING)?;
        }
        if !ours {
            return Ok(Settled::NotOurs);
        }
        write(&self.0, pg, table, &ending).await
    }

    /// Ends a claim in a separate commit. After an error, [`PgStore::look_at_row`] says whether the claim ended.
    pub fn settle_row<'a>(&'a self, table: &'a AdoptedTable, row: &'a RowToken, end: &'a RowEnd) -> Fut<'a, Settled> {
        self.bounded(DOING, async move {
            let ending = Ending { row, end, marker: None };
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let settled = match end {
                // One statement is one commit.
                RowEnd::Done | RowEnd::Kept { calls_of: None } | RowEnd::Deleted => {
                    write(&self.0, lent.pg(), table, &ending).await?
                }
                _ => {
                    let mut tx = lent.pg().begin().await.doing(DOING)?;
                    let settled = write(&self.0, &mut tx, table, &ending).await?;
                    tx.commit().await.doing(DOING)?;
                    settled
                }
            };
            lent.end(DOING).await?;
            Ok(settled)
        })
    }

    /// The outcome of a settle whose commit got no reply. Waits for another transaction that has the row locked.
    /// `None`: the row was not settled, and the claim still holds.
    pub fn look_at_row<'a>(
        &'a self,
        table: &'a AdoptedTable,
        row: &'a RowToken,
        end: &'a RowEnd,
    ) -> Fut<'a, Option<Settled>> {
        self.bounded("read row", async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let found = sqlx::query(table.sql.adopt_look.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .fetch_optional(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            let gone = match end {
                RowEnd::Deleted => Settled::Applied,
                _ => Settled::Lost,
            };
            found.map_or(Ok(Some(gone)), |found| became(&found, end)).doing(DOING)
        })
    }
}

/// Whether the row is in the state that this end produces.
fn became(row: &PgRow, end: &RowEnd) -> sqlx::Result<Option<Settled>> {
    if row.try_get("held")? {
        return Ok(None);
    }
    let (free, inactive): (bool, bool) = (row.try_get("free")?, row.try_get("inactive")?);
    let said: Option<String> = row.try_get("error")?;
    let ours = match end {
        RowEnd::Done => inactive && said.is_none(),
        RowEnd::Kept { .. } => said.is_none(),
        RowEnd::Deleted => false,
        RowEnd::Back { error, .. } => error.is_none() || said == *error,
        RowEnd::Retired { error, .. } | RowEnd::Cancelled { error } => inactive && said.as_ref() == Some(error),
    };
    Ok(Some(match free && ours {
        true => Settled::Applied,
        false => Settled::Lost,
    }))
}

/// Ends a claim whose work is done.
async fn finish(inner: &Inner, pg: &mut PgConnection, table: &AdoptedTable, ending: &Ending<'_>) -> Result<Settled> {
    let RowToken { id, token } = ending.row;
    let sql = match ending.end {
        RowEnd::Deleted => &table.sql.adopt_delete,
        _ => &table.sql.adopt_finish,
    };
    let mut query = sqlx::query(sql.clone()).persistent(inner.named()).bind(id).bind(token);
    if *ending.end != RowEnd::Deleted {
        query = query.bind(matches!(ending.end, RowEnd::Kept { .. }));
    }
    let row = query.bind(ending.marker).fetch_one(&mut *pg).await.doing(DOING)?;
    let (applied, marked): (bool, bool) = (
        row.try_get("applied").doing(DOING)?,
        row.try_get("marked").doing(DOING)?,
    );
    if let RowEnd::Kept { calls_of: Some(row) } = ending.end
        && marked
        && applied
    {
        effect::mark_kept(inner, pg, *row).await?;
    }
    Ok(match (marked, applied) {
        (false, _) => Settled::NotOurs,
        (true, true) => Settled::Applied,
        (true, false) => Settled::Lost,
    })
}

async fn write(inner: &Inner, pg: &mut PgConnection, table: &AdoptedTable, ending: &Ending<'_>) -> Result<Settled> {
    let RowToken { id, token } = ending.row;
    let (counted, over, delay, error) = match ending.end {
        RowEnd::Back { counted, delay, error } => (*counted, false, *delay, error.as_deref()),
        RowEnd::Retired { counted, error, .. } => (*counted, true, Duration::ZERO, Some(error.as_str())),
        RowEnd::Cancelled { error } => (false, true, Duration::ZERO, Some(error.as_str())),
        RowEnd::Done | RowEnd::Kept { .. } | RowEnd::Deleted => return finish(inner, pg, table, ending).await,
    };
    let row = sqlx::query(table.sql.adopt_unclaim.clone())
        .persistent(inner.named())
        .bind(id)
        .bind(token)
        .bind(counted)
        .bind(over)
        .bind(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))
        .bind(error)
        .bind(inner.now())
        .bind(ending.marker)
        .fetch_one(&mut *pg)
        .await
        .doing(DOING)?;
    if !row.try_get::<bool, _>("marked").doing(DOING)? {
        return Ok(Settled::NotOurs);
    }
    if !row.try_get::<bool, _>("applied").doing(DOING)? {
        return Ok(Settled::Lost);
    }
    if let RowEnd::Retired { error, doubts, .. } = ending.end {
        let at = rows::maybe_at(&row, "at")
            .doing(DOING)?
            .unwrap_or(Timestamp::UNIX_EPOCH);
        let filed = Filed {
            id: id.clone(),
            retired_at: at,
            reason: error.clone(),
            doubts: doubts.clone(),
        };
        file(inner, pg, table, &[filed]).await?;
    }
    Ok(Settled::Applied)
}

/// Creates the cases of rows that were retired in this same transaction.
pub(super) async fn file(inner: &Inner, pg: &mut PgConnection, table: &AdoptedTable, rows: &[Filed]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let payload = |row: &Filed| {
        let retired = RetiredRow {
            table: table.adoptee.table.exact(),
            id: row.id.clone(),
            retired_at: row.retired_at,
            doubts: row.doubts.clone(),
        };
        serde_json::to_string(&retired).map_err(|source| Error::Encode {
            kind: RetiredRow::KIND.to_owned(),
            source,
        })
    };
    sqlx::query(inner.sql.adopt_case.clone())
        .persistent(inner.named())
        .bind(rows.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind(rows.iter().map(payload).collect::<Result<Vec<_>>>()?)
        .bind(rows.iter().map(|row| row.reason.as_str()).collect::<Vec<_>>())
        .bind(RetiredRow::KIND)
        .bind(&*table.queue)
        .bind(queue_no(&table.queue))
        .bind(kind_no(RetiredRow::KIND, RetiredRow::VERSION))
        .bind(inner.now())
        .execute(pg)
        .await
        .doing("file case")?;
    Ok(())
}

/// What recovery did with one row, and the case that the row needs.
pub(super) fn recovered(row: &PgRow) -> sqlx::Result<(Recovered, Option<Filed>)> {
    let (id, retired): (String, bool) = (row.try_get("id")?, row.try_get("retired")?);
    let silent_us: i64 = row.try_get("silent_us")?;
    let filed = match retired {
        true => Some(Filed {
            id: id.clone(),
            retired_at: rows::at(row, "at")?,
            reason: row.try_get("error")?,
            doubts: Vec::new(),
        }),
        false => None,
    };
    let silent = Duration::from_micros(u64::try_from(silent_us).unwrap_or(0));
    Ok((Recovered { id, retired, silent }, filed))
}
