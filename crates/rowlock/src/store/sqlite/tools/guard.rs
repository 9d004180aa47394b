//! Guards: the write lock replaces every guard lock, because only one caller can hold it.

use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::store::sqlite::sql;
use crate::store::{
    guard::GuardAsk,
    transition::{Move, RowId, text},
};

pub async fn ask(db: &mut SqliteConnection, now: i64, ask: GuardAsk<'_>) -> sqlx::Result<Option<i64>> {
    match ask {
        GuardAsk::Lock(_) => sqlx::query(sql::GUARD_LOCK).execute(db).await.map(|_| None),
        GuardAsk::Read(key) => {
            let found = sqlx::query_scalar(sql::GUARD_VERSION)
                .bind(key)
                .fetch_optional(db)
                .await?;
            Ok(Some(found.unwrap_or(0)))
        }
        GuardAsk::Raise { key, seen } => {
            let raise = sqlx::query_scalar(sql::GUARD_RAISE).bind(key).bind(seen).bind(now);
            raise.fetch_optional(db).await
        }
    }
}

pub async fn transition(db: &mut SqliteConnection, step: &Move) -> sqlx::Result<u64> {
    let id = match &step.id {
        // Not quoted: a column without a type does not convert a text into a number.
        RowId::Number(id) => id.to_string(),
        RowId::Text(id) => text(id),
        RowId::Uuid(id) => format!("x'{}', '{id}'", id.simple()),
    };
    let statement = step.statement(sql::TRANSITION, "rowlock_setting", &id);
    let query = sqlx::query(AssertSqlSafe(statement)).persistent(false);
    Ok(query.execute(db).await?.rows_affected())
}
