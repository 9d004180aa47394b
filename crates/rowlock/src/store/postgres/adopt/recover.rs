//! Claims whose workers are lost.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::{
    super::{Inner, PgStore},
    AdoptedTable, Refused, at_once, refused, settle,
};
use crate::{
    backoff::Backoff,
    error::{Doing, Result},
    store::Fut,
};

const DOING: &str = "recover rows";

/// How many stale claims one commit of recovery ends.
pub const RECOVER_MAX: i32 = 200;

/// A claim that recovery ended.
pub struct Recovered {
    pub id: String,
    pub retired: bool,
    pub silent: Duration,
}

/// What recovery searches for.
pub struct Stale<'a> {
    pub lease: Duration,
    pub backoff: Backoff,
    /// Rows that the table refused before.
    pub without: &'a [String],
}

impl Stale<'_> {
    fn lease_us(&self) -> i64 {
        i64::try_from(self.lease.as_micros()).unwrap_or(i64::MAX)
    }
}

impl PgStore {
    /// Ends up to [`RECOVER_MAX`] stale claims, with the cases of rows that are out of attempts. If the table refuses
    /// one of the rows, they are ended one by one, and the refused rows stay as they are.
    pub fn recover_rows<'a>(&'a self, table: &'a AdoptedTable, stale: Stale<'a>) -> Fut<'a, (Vec<Recovered>, Refused)> {
        self.bounded(DOING, async move {
            for singly in [false, true] {
                let mut lent = self.0.rows.acquire().await.doing(DOING)?;
                let mut tx = lent.pg().begin().await.doing(DOING)?;
                let ended = match singly {
                    false => end_stale(&self.0, &mut tx, table, &stale, None)
                        .await
                        .map(|ended| (ended, Refused::new())),
                    true => one_by_one(&self.0, &mut tx, table, &stale).await,
                };
                let ended = match ended {
                    // Dropping the connection closes it.
                    Err(error) if !singly && refused(&error) => continue,
                    ended => ended?,
                };
                tx.commit().await.doing(DOING)?;
                lent.end(DOING).await?;
                return Ok(ended);
            }
            Ok((Vec::new(), Refused::new()))
        })
    }
}

async fn end_stale(
    inner: &Inner,
    tx: &mut PgConnection,
    table: &AdoptedTable,
    stale: &Stale<'_>,
    only: Option<&str>,
) -> Result<Vec<Recovered>> {
    let rows = sqlx::query(table.sql.adopt_recover.clone())
        .persistent(inner.named())
        .bind(stale.lease_us())
        .bind(RECOVER_MAX)
        .bind(stale.backoff.base.as_micros() as f64)
        .bind(stale.backoff.max.as_micros() as f64)
        .bind(inner.now())
        .bind(stale.without)
        .bind(only)
        .fetch_all(&mut *tx)
        .await
        .doing(DOING)?;
    let mut recovered = Vec::with_capacity(rows.len());
    let mut cases = Vec::new();
    for row in &rows {
        let (one, case) = settle::recovered(row).doing(DOING)?;
        recovered.push(one);
        cases.extend(case);
    }
    settle::file(inner, tx, table, &cases).await?;
    Ok(recovered)
}

async fn one_by_one(
    inner: &Inner,
    tx: &mut PgConnection,
    table: &AdoptedTable,
    stale: &Stale<'_>,
) -> Result<(Vec<Recovered>, Refused)> {
    at_once(tx).await.doing(DOING)?;
    let ids: Vec<String> = sqlx::query_scalar(table.sql.adopt_stale.clone())
        .persistent(inner.named())
        .bind(stale.lease_us())
        .bind(i64::from(RECOVER_MAX))
        .bind(inner.now())
        .bind(stale.without)
        .fetch_all(&mut *tx)
        .await
        .doing(DOING)?;
    let (mut recovered, mut refusals) = (Vec::new(), Refused::new());
    for id in ids {
        let mut savepoint = tx.begin().await.doing(DOING)?;
        match end_stale(inner, &mut savepoint, table, stale, Some(&id)).await {
            Ok(ended) => {
                savepoint.commit().await.doing(DOING)?;
                recovered.extend(ended);
            }
            Err(error) if refused(&error) => {
                savepoint.rollback().await.doing(DOING)?;
                refusals.push((id, error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((recovered, refusals))
}
