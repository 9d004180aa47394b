//! Waits on PostgreSQL: completing a name, the sweep, and where a job stands.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::{Inner, PgStore, by_key::ByKey, pooler::Whole, rows};
use crate::{
    error::{Doing, Error, Result},
    state::State,
    store::{
        Fut, Store,
        waits::{Completing, EXPIRED_WAITING, NOT_COMPLETED, Stand, Swept, WaitOver, Waits},
    },
};

impl Waits for PgStore {
    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>> {
        self.bounded("complete", async move {
            let mut lent = self.0.engine.acquire().await.doing("complete")?;
            let moved = complete(&self.0, lent.pg(), name, answer).await?;
            lent.end("complete").await?;
            Ok(moved)
        })
    }

    fn sweep_waits(&self, max: i32, names: bool) -> Fut<'_, Swept> {
        self.bounded("sweep waits", async move {
            let (swept, woken) = sweep(&self.0, max, names).await?;
            self.wake(&woken);
            Ok(swept)
        })
    }

    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>> {
        self.bounded("wait", async move {
            let mut lent = self.0.engine.acquire().await.doing("wait")?;
            let sql = &self.0.sql;
            let statement = if chain { &sql.stand_chain } else { &sql.stand };
            let found = sqlx::query(statement.clone())
                .persistent(self.0.named())
                .bind(id)
                .fetch_all(lent.pg())
                .await
                .doing("wait")?;
            lent.end("wait").await?;
            found.iter().map(stand).collect::<sqlx::Result<_>>().doing("wait")
        })
    }
}

impl Completing<PgConnection> for PgStore {
    fn complete_in<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        name: &'a str,
        answer: Option<&'a str>,
    ) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let whole = Whole::begin(&self.0, conn, "complete").await?;
            let completed = async {
                let by_key = ByKey::begin(&self.0, conn, "complete").await?;
                let moved = complete(&self.0, conn, name, answer).await?;
                by_key.end(&self.0, conn, "complete").await?;
                Ok(moved)
            };
            let completed = completed.await;
            whole.end(conn, completed, "complete").await.map_err(Error::answered)
        })
    }

    fn answer_in<'a>(&'a self, conn: &'a mut PgConnection, id: i64) -> Fut<'a, Option<String>> {
        Box::pin(async move {
            let by_key = ByKey::begin(&self.0, conn, "read answer").await?;
            let found: Option<Option<String>> = sqlx::query_scalar(self.0.sql.answer.clone())
                .persistent(self.0.named())
                .bind(id)
                .fetch_optional(&mut *conn)
                .await
                .doing("read answer")?;
            by_key.end(&self.0, conn, "read answer").await?;
            Ok(found.flatten())
        })
    }
}

/// One statement, so that it is whole on a connection outside any transaction too.
async fn complete(inner: &Inner, pg: &mut PgConnection, name: &str, answer: Option<&str>) -> Result<Option<i64>> {
    let row = sqlx::query(inner.sql.complete.clone())
        .persistent(inner.named())
        .bind(name)
        .bind(answer)
        .bind(inner.now())
        .bind(&*inner.channel)
        .fetch_optional(pg)
        .await
        .doing("complete")?;
    row.map(|row| row.try_get("jobs")).transpose().doing("complete")
}

async fn sweep(inner: &Inner, max: i32, names: bool) -> Result<(Swept, Vec<i64>)> {
    const DOING: &str = "sweep waits";
    let mut lent = inner.engine.acquire().await.doing(DOING)?;
    let (due, groups, cases): (bool, bool, bool) = sqlx::query_as(inner.sql.waits_due.clone())
        .persistent(inner.named())
        .bind(inner.now())
        .bind(names)
        .fetch_one(lent.pg())
        .await
        .doing(DOING)?;
    if !due {
        lent.end(DOING).await?;
        let swept = Swept {
            groups,
            cases,
            ..Swept::default()
        };
        return Ok((swept, Vec::new()));
    }
    let mut tx = lent.pg().begin().await.doing(DOING)?;
    let mut woken: Vec<i64> = Vec::new();
    if names {
        woken = sqlx::query_scalar(inner.sql.waits_completed.clone())
            .persistent(inner.named())
            .bind(max)
            .bind(inner.now())
            .fetch_all(&mut *tx)
            .await
            .doing(DOING)?;
    }
    let moved = woken.len();
    let found = sqlx::query(inner.sql.waits_over.clone())
        .persistent(inner.named())
        .bind(max)
        .bind(inner.now())
        .bind(NOT_COMPLETED)
        .bind(EXPIRED_WAITING)
        .fetch_all(&mut *tx)
        .await
        .doing(DOING)?;
    let over: Vec<WaitOver> = found.iter().map(wait_over).collect::<sqlx::Result<_>>().doing(DOING)?;
    if let Some(row) = found.first() {
        let by_end: Option<Vec<i64>> = row.try_get("woken").doing(DOING)?;
        woken.extend(by_end.unwrap_or_default());
    }
    tx.commit().await.doing(DOING)?;
    lent.end(DOING).await?;
    woken.sort_unstable();
    woken.dedup();
    let swept = Swept {
        moved,
        over,
        groups,
        cases,
    };
    Ok((swept, woken))
}

fn wait_over(row: &PgRow) -> sqlx::Result<WaitOver> {
    let outcome: String = row.try_get("outcome")?;
    Ok(WaitOver {
        id: row.try_get("id")?,
        queue: row.try_get("queue")?,
        kind: row.try_get("kind")?,
        ended: rows::ended(&outcome)?,
        reason: row.try_get("reason")?,
    })
}

fn stand(row: &PgRow) -> sqlx::Result<Stand> {
    let (state, last): (String, Option<String>) = (row.try_get("state")?, row.try_get("last_outcome")?);
    Ok(Stand {
        id: row.try_get("id")?,
        state: rows::word(&state, State::parse(&state))?,
        last: last.as_deref().map(rows::ended).transpose()?,
        error: row.try_get("last_error")?,
        result: rows::json(row.try_get("result")?)?,
        compensates: row.try_get("compensates")?,
    })
}
