//! Guards: transaction-scoped advisory locks, and the counters of the data that they protect.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::store::postgres::{Inner, by_key::ByKey, run::Fault};
use crate::{
    error::{Error, Meaning, Result},
    store::{
        guard::lock_number,
        transition::{Move, RowId, text},
    },
};

/// Not sent by the simple protocol: whatever the text contains, it stays one statement.
pub async fn transition(inner: &Inner, conn: &mut PgConnection, step: &Move) -> sqlx::Result<u64> {
    // A literal without a type takes the column's type.
    let id = match &step.id {
        RowId::Number(id) => text(&id.to_string()),
        RowId::Text(id) => text(id),
        RowId::Uuid(id) => text(&id.to_string()),
    };
    let sql = &inner.sql;
    let statement = step.statement(sql.transition.as_str(), &format!("{}.setting", sql.schema), &id);
    let query = sqlx::query(AssertSqlSafe(statement)).persistent(false);
    Ok(query.execute(conn).await?.rows_affected())
}

pub async fn version(inner: &Inner, conn: &mut PgConnection, key: &str) -> sqlx::Result<Option<i64>> {
    let by_key = ByKey::begin(inner, conn).await?;
    let found: Option<i64> = inner
        .query_scalar(&inner.sql.guard_version)
        .bind(key)
        .fetch_optional(&mut *conn)
        .await?;
    by_key.end(inner, conn).await?;
    Ok(Some(found.unwrap_or(0)))
}

pub async fn raise(inner: &Inner, conn: &mut PgConnection, key: &str, seen: Option<i64>) -> sqlx::Result<Option<i64>> {
    let raised: Option<i64> = inner
        .query_scalar(&inner.sql.guard_raise)
        .bind(key)
        .bind(lock_number(key))
        .bind(seen)
        .bind(inner.now())
        .fetch_optional(&mut *conn)
        .await?;
    // A counter that was seen before and is missing now has been removed, which is a change too. The statement itself
    // does not check this, because a serializable transaction would then conflict with every other counter.
    if raised == Some(1) && seen.is_some_and(|seen| seen != 0) {
        let by_key = ByKey::begin(inner, conn).await?;
        let back = inner.query(&inner.sql.guard_take_back).bind(key);
        back.execute(&mut *conn).await?;
        by_key.end(inner, conn).await?;
        return Ok(None);
    }
    Ok(raised)
}

pub async fn lock(inner: &Inner, conn: &mut PgConnection, keys: &[&str]) -> Result<(), Fault> {
    let mut numbers: Vec<i64> = keys.iter().map(|key| lock_number(key)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = inner.query(&inner.sql.guard_lock).bind(numbers).fetch_all(conn).await?;
    for row in rows {
        if row.try_get::<Option<String>, _>("locked")?.is_none() {
            let stale = Error::Isolation {
                doing: "guard",
                found: row.try_get("level")?,
                source: Meaning::Final,
            };
            return Err(stale.into());
        }
    }
    Ok(())
}
