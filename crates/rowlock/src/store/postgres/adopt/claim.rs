//! Claims of rows, and of the few rows that may probe a breaker.

use jiff::Timestamp;
use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::{
    super::{Inner, PgStore, breaker, rows},
    AdoptedTable, Refused, RowToken, at_once, refused,
};
use crate::{
    breaker::{BreakerState, Trying},
    error::{Doing, Result},
    store::Fut,
};

const DOING: &str = "claim rows";

/// The suffix of the worker name in a claim that probes a breaker; `adopt/probing.sql` counts these.
const PROBE: &str = " (probe)";

/// A row that a worker has claimed.
pub struct ClaimedRow {
    /// All columns of the row.
    pub row: PgRow,
    pub token: RowToken,
    /// Attempts that failed or were lost before.
    pub attempts: i64,
    pub max_attempts: i64,
    pub due_at: Timestamp,
    /// By the database's clock, like `due_at`.
    pub claimed_at: Timestamp,
}

/// The answer to a claim of probes.
pub enum Probed {
    /// No row is due, or another caller is probing, or enough probes are running.
    NotNow,
    /// These rows probe these versions of the breakers.
    Rows {
        rows: Vec<ClaimedRow>,
        tried: Vec<(String, i64)>,
        refused: Refused,
    },
}

/// The request of a claim.
pub struct Asked<'a> {
    pub most: i32,
    pub by: &'a str,
    /// Rows that the table refused before.
    pub without: &'a [String],
}

impl PgStore {
    /// Takes up to this many rows, earliest first, unless one of these breakers is not closed. If the table refuses one
    /// of the rows, they are taken one by one, and the refused rows stay as they are.
    pub fn claim_rows<'a>(
        &'a self,
        table: &'a AdoptedTable,
        asked: Asked<'a>,
        breakers: &'a [String],
    ) -> Fut<'a, (Vec<ClaimedRow>, Refused)> {
        self.bounded(DOING, async move {
            let mut lent = self.0.rows.acquire().await.doing(DOING)?;
            match claim(&self.0, lent.pg(), table, &asked, breakers, None).await {
                Err(error) if refused(&error) => drop(lent),
                claimed => {
                    let claimed = claimed?;
                    lent.end(DOING).await?;
                    return Ok((claimed, Refused::new()));
                }
            }
            let mut lent = self.0.rows.acquire().await.doing(DOING)?;
            let mut tx = lent.pg().begin().await.doing(DOING)?;
            let claimed = one_by_one(&self.0, &mut tx, table, &asked, breakers).await?;
            tx.commit().await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(claimed)
        })
    }

    /// Takes rows to probe the first list of breakers, as many as these breakers let through together, while the other
    /// breakers are closed. The rows of the probed breakers are locked until the commit, so that the limit holds across
    /// all workers.
    pub fn probe_rows<'a>(
        &'a self,
        table: &'a AdoptedTable,
        asked: Asked<'a>,
        (breakers, closed): (&'a [String], &'a [String]),
    ) -> Fut<'a, Probed> {
        self.bounded(DOING, async move {
            for singly in [false, true] {
                let mut lent = self.0.rows.acquire().await.doing(DOING)?;
                let mut tx = lent.pg().begin().await.doing(DOING)?;
                let probed = match probe(&self.0, &mut tx, table, &asked, (breakers, closed), singly).await {
                    // Dropping the connection closes it.
                    Err(error) if !singly && refused(&error) => continue,
                    probed => probed?,
                };
                tx.commit().await.doing(DOING)?;
                lent.end(DOING).await?;
                return Ok(probed);
            }
            Ok(Probed::NotNow)
        })
    }
}

async fn claim(
    inner: &Inner,
    pg: &mut PgConnection,
    table: &AdoptedTable,
    asked: &Asked<'_>,
    breakers: &[String],
    only: Option<&str>,
) -> Result<Vec<ClaimedRow>> {
    let rows = sqlx::query(table.sql.adopt_claim.clone())
        .persistent(inner.named())
        .bind(i64::from(asked.most))
        .bind(asked.by)
        .bind(breakers)
        .bind(inner.now())
        .bind(asked.without)
        .bind(only)
        .fetch_all(pg)
        .await
        .doing(DOING)?;
    let mut claimed: Vec<ClaimedRow> = rows.into_iter().map(read).collect::<sqlx::Result<_>>().doing(DOING)?;
    claimed.sort_by_key(|row| row.due_at);
    Ok(claimed)
}

async fn one_by_one(
    inner: &Inner,
    tx: &mut PgConnection,
    table: &AdoptedTable,
    asked: &Asked<'_>,
    breakers: &[String],
) -> Result<(Vec<ClaimedRow>, Refused)> {
    at_once(tx).await.doing(DOING)?;
    let ids: Vec<String> = sqlx::query_scalar(table.sql.adopt_due.clone())
        .persistent(inner.named())
        .bind(i64::from(asked.most))
        .bind(inner.now())
        .bind(asked.without)
        .fetch_all(&mut *tx)
        .await
        .doing(DOING)?;
    let (mut claimed, mut refusals) = (Vec::new(), Refused::new());
    for id in ids {
        let mut savepoint = tx.begin().await.doing(DOING)?;
        match claim(inner, &mut savepoint, table, asked, breakers, Some(&id)).await {
            Ok(row) => {
                savepoint.commit().await.doing(DOING)?;
                claimed.extend(row);
            }
            Err(error) if refused(&error) => {
                savepoint.rollback().await.doing(DOING)?;
                refusals.push((id, error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((claimed, refusals))
}

async fn probe(
    inner: &Inner,
    tx: &mut PgConnection,
    table: &AdoptedTable,
    asked: &Asked<'_>,
    (breakers, closed): (&[String], &[String]),
    singly: bool,
) -> Result<Probed> {
    let mut trying = Trying::new(false);
    for name in breakers {
        let locked = breaker::locked(inner, tx, &inner.sql.breaker_try, name)
            .await
            .doing(DOING)?;
        let Some((mut found, now)) = locked else {
            return Ok(Probed::NotNow);
        };
        if let Some(half_open) = found.probed(asked.by, now) {
            breaker::moved(inner, tx, &found, &half_open).await.doing(DOING)?;
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
    let most = asked.most.min(trying.left(0));
    if trying.tried.is_empty() || most == 0 {
        return Ok(Probed::NotNow);
    }
    let by = format!("{}{PROBE}", asked.by);
    let asked = Asked {
        most,
        by: &by,
        without: asked.without,
    };
    let (rows, refused) = match singly {
        false => (claim(inner, tx, table, &asked, closed, None).await?, Refused::new()),
        true => one_by_one(inner, tx, table, &asked, closed).await?,
    };
    let tried = trying.tried;
    Ok(Probed::Rows { rows, tried, refused })
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
