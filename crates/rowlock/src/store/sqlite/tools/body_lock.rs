//! Body locks on SQLite, under its single writer.

use sqlx::SqliteConnection;

use crate::store::sqlite::sql;
use crate::{
    lease::Token,
    store::body_lock::{Slot, SlotAsk},
};

pub async fn ask(db: &mut SqliteConnection, now: i64, token: Token, key: &str, ask: SlotAsk) -> sqlx::Result<Slot> {
    match ask {
        SlotAsk::Take { slots } => take(db, now, token, key, slots).await,
        SlotAsk::Free { slot } => {
            let free = sqlx::query(sql::BODY_LOCK_RELEASE).bind(token.id).bind(token.epoch);
            let freed = free
                .bind(token.worker.0)
                .bind(key)
                .bind(slot)
                .fetch_optional(db)
                .await?;
            Ok(freed.map_or(Slot::LeaseLost, |_| Slot::Freed))
        }
    }
}

async fn take(db: &mut SqliteConnection, now: i64, token: Token, key: &str, slots: i32) -> sqlx::Result<Slot> {
    let taken = sqlx::query_scalar(sql::BODY_LOCK_TAKE)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(key)
        .bind(slots)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    if let Some(slot) = taken {
        return Ok(Slot::Taken(slot));
    }
    let lease = sqlx::query(sql::RESOLVE_LOCK).bind(token.id).bind(token.epoch);
    let leased = lease.bind(token.worker.0).fetch_optional(db).await?;
    Ok(leased.map_or(Slot::LeaseLost, |_| Slot::Full))
}
