//! Guards: transaction-scoped advisory locks, and the counters of what they protect.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Inner, PgStore};
use crate::{
    error::{Doing, Error, Meaning, Result},
    store::{
        Fut,
        guard::{Guarding, lock_number},
        transition::{Move, RowId, text},
    },
};

impl Guarding<PgConnection> for PgStore {
    fn guard_lock<'a>(&'a self, conn: &'a mut PgConnection, keys: &'a [&'a str]) -> Fut<'a, ()> {
        Box::pin(async move { lock(&self.0, conn, keys).await.map_err(Error::answered) })
    }

    fn guard_version<'a>(&'a self, conn: &'a mut PgConnection, key: &'a str) -> Fut<'a, i64> {
        Box::pin(async move {
            let found: Option<i64> = sqlx::query_scalar(self.0.sql.guard_version.clone())
                .bind(key)
                .fetch_optional(conn)
                .await
                .doing("read version")
                .map_err(Error::answered)?;
            Ok(found.unwrap_or(0))
        })
    }

    fn guard_raise<'a>(&'a self, conn: &'a mut PgConnection, key: &'a str, seen: Option<i64>) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let raised: Option<i64> = sqlx::query_scalar(self.0.sql.guard_raise.clone())
                .bind(key)
                .bind(lock_number(key))
                .bind(seen)
                .bind(self.0.now())
                .fetch_optional(conn)
                .await
                .doing("raise version")
                .map_err(Error::answered)?;
            Ok(raised)
        })
    }

    /// Not by the simple protocol: whatever is in the text, it stays one statement.
    fn transition<'a>(&'a self, conn: &'a mut PgConnection, step: &'a Move) -> Fut<'a, u64> {
        let sql = &self.0.sql;
        // Without a type of its own, a literal takes the column's.
        let id = match &step.id {
            RowId::Number(id) => text(&id.to_string()),
            RowId::Text(id) => text(id),
            RowId::Uuid(id) => text(&id.to_string()),
        };
        let statement = step.statement(sql.transition.as_str(), &format!("{}.setting", sql.schema), &id);
        Box::pin(async move {
            let moved = sqlx::query(AssertSqlSafe(statement))
                .persistent(false)
                .execute(conn)
                .await;
            let moved = moved.doing("transition").map_err(Error::answered)?;
            Ok(moved.rows_affected())
        })
    }
}

async fn lock(inner: &Inner, conn: &mut PgConnection, keys: &[&str]) -> Result<()> {
    let mut numbers: Vec<i64> = keys.iter().map(|key| lock_number(key)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = sqlx::query(inner.sql.guard_lock.clone())
        .bind(numbers)
        .fetch_all(conn)
        .await
        .doing("guard")?;
    for row in rows {
        if row.try_get::<Option<String>, _>("locked").doing("guard")?.is_none() {
            let found = row.try_get("level").doing("guard")?;
            return Err(Error::Isolation {
                doing: "guard",
                found,
                source: Meaning::Final,
            });
        }
    }
    Ok(())
}
