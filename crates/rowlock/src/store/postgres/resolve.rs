//! Finds the outcome of a commit whose reply was lost.

use sqlx::Connection;

use super::Inner;
use crate::{
    error::Result,
    lease::Token,
    store::{Resolved, rows},
};

/// Two separate statements: the second statement's snapshot must be newer than the lock that the first waited for.
pub async fn resolve(inner: &Inner, token: Token) -> Result<Resolved> {
    let lock = inner.query_scalar(&inner.sql.resolve_lock).bind(token.id);
    let lock = lock.bind(token.epoch).bind(token.worker.0);
    let read = inner.query_scalar(&inner.sql.resolve_outcome).bind(token.id);
    let read = read.bind(token.epoch).bind(token.worker.0);
    let resolve = inner.run("resolve", async |pg| {
        let mut tx = pg.begin().await?;
        let leased: Option<i64> = lock.fetch_optional(&mut *tx).await?;
        let outcome: Option<String> = read.fetch_optional(&mut *tx).await?;
        tx.commit().await?;
        Ok(match (outcome, leased) {
            (Some(word), _) => Resolved::Ended(rows::ended(&word)?),
            (None, Some(_)) => Resolved::StillLeased,
            (None, None) => Resolved::Lost,
        })
    });
    resolve.await
}
