//! Body locks on SQLite, under its single writer.

use super::{SqliteStore, sql};
use crate::{
    lease::Token,
    store::{
        Fut,
        body_lock::{BodyLocks, Take},
    },
};

type Ask = (Token, String, i32);

impl BodyLocks for SqliteStore {
    fn take_slot<'a>(&'a self, token: Token, key: &'a str, slots: i32) -> Fut<'a, Take> {
        let ask: Ask = (token, key.to_owned(), slots);
        Box::pin(self.write("lock", ask, |db, now, (token, key, slots)| {
            Box::pin(async move {
                let slot: Option<i32> = sqlx::query_scalar(sql::BODY_LOCK_TAKE)
                    .bind(token.id)
                    .bind(token.epoch)
                    .bind(token.worker.0)
                    .bind(key)
                    .bind(slots)
                    .bind(now)
                    .fetch_optional(&mut *db)
                    .await?;
                if let Some(slot) = slot {
                    return Ok(Take::Taken(slot));
                }
                let leased = sqlx::query(sql::RESOLVE_LOCK)
                    .bind(token.id)
                    .bind(token.epoch)
                    .bind(token.worker.0)
                    .fetch_optional(&mut *db)
                    .await?;
                Ok(match leased {
                    Some(_) => Take::Full,
                    None => Take::LeaseLost,
                })
            })
        }))
    }

    fn free_slot<'a>(&'a self, token: Token, key: &'a str, slot: i32) -> Fut<'a, bool> {
        let ask: Ask = (token, key.to_owned(), slot);
        Box::pin(self.write("release lock", ask, |db, _, (token, key, slot)| {
            Box::pin(async move {
                let freed = sqlx::query(sql::BODY_LOCK_RELEASE)
                    .bind(token.id)
                    .bind(token.epoch)
                    .bind(token.worker.0)
                    .bind(key)
                    .bind(slot)
                    .fetch_optional(&mut *db)
                    .await?;
                Ok(freed.is_some())
            })
        }))
    }
}
