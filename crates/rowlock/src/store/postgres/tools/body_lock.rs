//! Body locks on PostgreSQL: one statement each, without a transaction or an advisory lock that stays open.

use sqlx::Row;

use crate::store::postgres::Inner;
use crate::{
    error::Result,
    lease::Token,
    store::body_lock::{Slot, SlotAsk},
};

pub async fn ask(inner: &Inner, token: Token, key: &str, ask: SlotAsk) -> Result<Slot> {
    let (doing, text, number) = match ask {
        SlotAsk::Take { slots } => ("lock", &inner.sql.body_lock_take, slots),
        SlotAsk::Free { slot } => ("release lock", &inner.sql.body_lock_release, slot),
    };
    let mut query = inner
        .query(text)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(key)
        .bind(number);
    if let SlotAsk::Take { .. } = ask {
        query = query.bind(inner.now());
    }
    let answer = inner.run(doing, async |pg| {
        let row = query.fetch_optional(pg).await?;
        let (SlotAsk::Take { .. }, Some(row)) = (ask, &row) else {
            return Ok(row.map_or(Slot::LeaseLost, |_| Slot::Freed));
        };
        let (leased, tried): (bool, bool) = (row.try_get("leased")?, row.try_get("tried")?);
        Ok(match row.try_get("slot")? {
            _ if !leased => Slot::LeaseLost,
            Some(slot) => Slot::Taken(slot),
            None if tried => Slot::Raced,
            None => Slot::Full,
        })
    });
    answer.await
}
