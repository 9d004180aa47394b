//! Claims of rows, and of the few that may try a breaker.

use jiff::Timestamp;
use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::{
    super::{Inner, PgStore, breaker, rows},
    AdoptedTable, RowToken,
};
use crate::{
    breaker::{BreakerState, Trying},
    error::{Doing, Result},
    store::Fut,
};

const DOING: &str = "claim rows";

/// What the name of who claims a row to try a breaker ends with; `adopt_probing.sql` counts by it.
const PROBE: &str = " (probe)";

/// A row in a worker's hands.
pub struct ClaimedRow {
    /// Everything, as the table has it.
    pub row: PgRow,
    pub token: RowToken,
    /// Attempts that failed or were lost before.
    pub attempts: i64,
    pub max_attempts: i64,
    pub due_at: Timestamp,
    /// By the database's clock, as `due_at` is.
    pub claimed_at: Timestamp,
}

/// The answer to a claim of probes.
pub enum Probed {
    /// None is due, or somebody else is at it, or enough are under way.
    NotNow,
    /// These try the versions of those breakers.
    Rows {
        rows: Vec<ClaimedRow>,
        tried: Vec<(String, i64)>,
    },
}

impl PgStore {
    /// Takes up to `most` rows, unless one of these breakers is not closed; earliest first.
    pub fn claim_rows<'a>(
        &'a self,
        table: &'a AdoptedTable,
        most: i32,
        by: &'a str,
        breakers: &'a [String],
    ) -> Fut<'a, Vec<ClaimedRow>> {
        self.bounded(DOING, async move {
            let mut lent = self.0.rows.acquire().await.doing(DOING)?;
            let claimed = claim(&self.0, lent.pg(), table, most, by, breakers).await?;
            lent.end(DOING).await?;
            Ok(claimed)
        })
    }

    /// Takes rows to try the first of these breakers, as many as those let through at once, while the others are closed. The
    /// rows of the first are locked until it commits, so that the number holds in the whole fleet.
    pub fn probe_rows<'a>(
        &'a self,
        table: &'a AdoptedTable,
        most: i32,
        by: &'a str,
        (breakers, closed): (&'a [String], &'a [String]),
    ) -> Fut<'a, Probed> {
        self.bounded(DOING, async move {
            let mut lent = self.0.rows.acquire().await.doing(DOING)?;
            let mut tx = lent.pg().begin().await.doing(DOING)?;
            let probed = probe(&self.0, &mut tx, table, most, by, (breakers, closed)).await?;
            tx.commit().await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(probed)
        })
    }
}

async fn claim(
    inner: &Inner,
    pg: &mut PgConnection,
    table: &AdoptedTable,
    most: i32,
    by: &str,
    breakers: &[String],
) -> Result<Vec<ClaimedRow>> {
    let rows = sqlx::query(table.sql.adopt_claim.clone())
        .persistent(inner.named())
        .bind(i64::from(most))
        .bind(by)
        .bind(breakers)
        .bind(inner.now())
        .fetch_all(pg)
        .await
        .doing(DOING)?;
    let mut claimed: Vec<ClaimedRow> = rows.into_iter().map(read).collect::<sqlx::Result<_>>().doing(DOING)?;
    claimed.sort_by_key(|row| row.due_at);
    Ok(claimed)
}

async fn probe(
    inner: &Inner,
    tx: &mut PgConnection,
    table: &AdoptedTable,
    most: i32,
    by: &str,
    (breakers, closed): (&[String], &[String]),
) -> Result<Probed> {
    let mut trying = Trying::new(false);
    for name in breakers {
        let locked = breaker::locked(inner, tx, &inner.sql.breaker_try, name, DOING).await?;
        let Some((mut found, now)) = locked else {
            return Ok(Probed::NotNow);
        };
        if let Some(half_open) = found.probed(by, now) {
            breaker::moved(inner, tx, &found, &half_open, DOING).await?;
            found = half_open;
        }
        match found.state {
            BreakerState::Closed => {}
            BreakerState::Open => return Ok(Probed::NotNow),
            BreakerState::HalfOpen => {
                let count = sqlx::query_scalar(table.sql.adopt_probing.clone()).persistent(inner.named());
                let probing: i32 = count.fetch_one(&mut *tx).await.doing(DOING)?;
                trying.add(&found, probing);
            }
        }
    }
    let most = most.min(trying.left(0));
    if trying.tried.is_empty() || most == 0 {
        return Ok(Probed::NotNow);
    }
    let rows = claim(inner, tx, table, most, &format!("{by}{PROBE}"), closed).await?;
    let tried = trying.tried;
    Ok(Probed::Rows { rows, tried })
}

fn read(row: PgRow) -> sqlx::Result<ClaimedRow> {
    Ok(ClaimedRow {
        token: RowToken {
            id: row.try_get("rowlock id")?,
            token: row.try_get("rowlock token")?,
        },
        attempts: row.try_get("rowlock attempts")?,
        max_attempts: row.try_get("rowlock max attempts")?,
        due_at: rows::at(&row, "rowlock due")?,
        claimed_at: rows::at(&row, "rowlock claimed at")?,
        row,
    })
}
