//! Finds the outcome of a commit whose reply was lost.

use sqlx::SqliteConnection;

use super::sql;
use crate::{
    lease::Token,
    store::{Resolved, rows},
};

/// The write lock is held, so the holder of the token has committed, rolled back, or closed.
pub async fn resolve(db: &mut SqliteConnection, token: Token) -> sqlx::Result<Resolved> {
    let outcome: Option<String> = sqlx::query_scalar(sql::RESOLVE_OUTCOME)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *db)
        .await?;
    if let Some(word) = outcome {
        return Ok(Resolved::Ended(rows::ended(&word)?));
    }
    let leased = sqlx::query(sql::RESOLVE_LOCK)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *db)
        .await?;
    Ok(match leased {
        Some(_) => Resolved::StillLeased,
        None => Resolved::Lost,
    })
}
