//! Waits on PostgreSQL: completing a name, the sweep, and the place of a job.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use crate::store::postgres::{Inner, by_key::ByKey, pooler::Whole};
use crate::{
    error::Result,
    store::{
        rows::Columns,
        waits::{EXPIRED_WAITING, NOT_COMPLETED, Stand, Swept, WaitOver},
    },
};

pub async fn complete(inner: &Inner, name: &str, answer: Option<&str>) -> Result<Option<i64>> {
    inner
        .run("complete", async |pg| Ok(complete_on(inner, pg, name, answer).await?))
        .await
}

pub async fn stands(inner: &Inner, id: i64, chain: bool) -> Result<Vec<Stand>> {
    let text = if chain {
        &inner.sql.stand_chain
    } else {
        &inner.sql.stand
    };
    inner.list("wait", inner.query(text).bind(id)).await
}

/// Completes a name in the transaction that is open.
pub async fn complete_whole(
    inner: &Inner,
    pg: &mut PgConnection,
    name: &str,
    answer: Option<&str>,
) -> sqlx::Result<Option<i64>> {
    let whole = Whole::begin(inner, pg).await?;
    let completed = async {
        let by_key = ByKey::begin(inner, pg).await?;
        let moved = complete_on(inner, pg, name, answer).await?;
        by_key.end(inner, pg).await?;
        Ok(moved)
    };
    let completed = completed.await;
    whole.end(pg, completed).await
}

pub async fn answer(inner: &Inner, pg: &mut PgConnection, id: i64) -> sqlx::Result<Option<String>> {
    let by_key = ByKey::begin(inner, pg).await?;
    let read = inner.query_scalar(&inner.sql.answer).bind(id);
    let found: Option<Option<String>> = read.fetch_optional(&mut *pg).await?;
    by_key.end(inner, pg).await?;
    Ok(found.flatten())
}

/// One statement, so that it is atomic outside a transaction too.
async fn complete_on(
    inner: &Inner,
    pg: &mut PgConnection,
    name: &str,
    answer: Option<&str>,
) -> sqlx::Result<Option<i64>> {
    let complete = inner.query(&inner.sql.complete).bind(name).bind(answer);
    let complete = complete.bind(inner.now()).bind(&*inner.channel);
    let row = complete.fetch_optional(pg).await?;
    row.map(|row| row.try_get("jobs")).transpose()
}

/// What the sweep did, and the queues with new work.
pub async fn sweep(inner: &Inner, max: i32, names: bool) -> Result<(Swept, Vec<i64>)> {
    let sweep = inner.run("sweep waits", async |pg| {
        let due = inner.query_as(&inner.sql.waits_due).bind(inner.now()).bind(names);
        let (due, groups, cases): (bool, bool, bool) = due.fetch_one(&mut *pg).await?;
        let mut swept = Swept {
            groups,
            cases,
            ..Swept::default()
        };
        if !due {
            return Ok((swept, Vec::new()));
        }
        let mut tx = pg.begin().await?;
        let mut woken: Vec<i64> = Vec::new();
        if names {
            let move_on = inner
                .query_scalar(&inner.sql.waits_completed)
                .bind(max)
                .bind(inner.now());
            woken = move_on.fetch_all(&mut *tx).await?;
        }
        swept.moved = woken.len();
        let end = inner.query(&inner.sql.waits_over).bind(max).bind(inner.now());
        let end = end.bind(NOT_COMPLETED).bind(EXPIRED_WAITING);
        let over = end.fetch_all(&mut *tx).await?;
        swept.over = over.iter().map(wait_over).collect::<sqlx::Result<_>>()?;
        if let Some(row) = over.first() {
            woken.extend(row.try_get::<Option<Vec<i64>>, _>("woken")?.unwrap_or_default());
        }
        tx.commit().await?;
        woken.sort_unstable();
        woken.dedup();
        Ok((swept, woken))
    });
    sweep.await
}

fn wait_over(row: &PgRow) -> sqlx::Result<WaitOver> {
    Ok(WaitOver {
        id: row.read("id")?,
        queue: row.read("queue")?,
        kind: row.read("kind")?,
        ended: row.read("outcome")?,
        reason: row.read("reason")?,
    })
}
