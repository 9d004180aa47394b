//! Body locks on PostgreSQL: one statement each, no transaction and no advisory lock left open.

use sqlx::Row;

use super::Inner;
use crate::{error::Result, lease::Token, store::body_lock::Take};

pub async fn take(inner: &Inner, token: Token, key: &str, slots: i32) -> Result<Take> {
    let take = inner
        .query(&inner.sql.body_lock_take)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(key)
        .bind(slots)
        .bind(inner.now());
    inner
        .run("lock", async |pg| {
            let row = take.fetch_one(pg).await?;
            let (leased, tried): (bool, bool) = (row.try_get("leased")?, row.try_get("tried")?);
            Ok(match row.try_get("slot")? {
                _ if !leased => Take::LeaseLost,
                Some(slot) => Take::Taken(slot),
                None if tried => Take::Raced,
                None => Take::Full,
            })
        })
        .await
}

pub async fn free(inner: &Inner, token: Token, key: &str, slot: i32) -> Result<bool> {
    let free = inner
        .query(&inner.sql.body_lock_release)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(key)
        .bind(slot);
    inner
        .run("release lock", async |pg| Ok(free.fetch_optional(pg).await?.is_some()))
        .await
}
