//! Body locks on PostgreSQL: one statement each, no transaction and no advisory lock left open.

use sqlx::Row;

use super::PgStore;
use crate::{
    error::Doing,
    lease::Token,
    store::{
        Fut,
        body_lock::{BodyLocks, Take},
    },
};

impl BodyLocks for PgStore {
    fn take_slot<'a>(&'a self, token: Token, key: &'a str, slots: i32) -> Fut<'a, Take> {
        self.bounded("lock", async move {
            let mut lent = self.0.engine.acquire().await.doing("lock")?;
            let row = sqlx::query(self.0.sql.body_lock_take.clone())
                .bind(token.id)
                .bind(token.epoch)
                .bind(token.worker.0)
                .bind(key)
                .bind(slots)
                .bind(self.0.now())
                .fetch_one(lent.pg())
                .await
                .doing("lock")?;
            lent.end("lock").await?;
            let slot: Option<i32> = row.try_get("slot").doing("lock")?;
            let leased: bool = row.try_get("leased").doing("lock")?;
            let tried: bool = row.try_get("tried").doing("lock")?;
            Ok(match slot {
                _ if !leased => Take::LeaseLost,
                Some(slot) => Take::Taken(slot),
                None if tried => Take::Raced,
                None => Take::Full,
            })
        })
    }

    fn free_slot<'a>(&'a self, token: Token, key: &'a str, slot: i32) -> Fut<'a, bool> {
        self.bounded("release lock", async move {
            let mut lent = self.0.engine.acquire().await.doing("release lock")?;
            let freed = sqlx::query(self.0.sql.body_lock_release.clone())
                .bind(token.id)
                .bind(token.epoch)
                .bind(token.worker.0)
                .bind(key)
                .bind(slot)
                .fetch_optional(lent.pg())
                .await
                .doing("release lock")?;
            lent.end("release lock").await?;
            Ok(freed.is_some())
        })
    }
}
