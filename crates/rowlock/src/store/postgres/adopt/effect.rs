//! Outside calls of rows, in the ledger: the intent before, the reply after.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::Row;

use super::{
    super::{PgStore, rows},
    AdoptedTable, RowToken,
};
use crate::{error::Doing, store::Fut};

/// What is known when a call is about to begin.
pub enum Intent {
    /// Nobody called before; this names the intent.
    First(Timestamp),
    /// Somebody was about to, and nobody knows more.
    Open(Timestamp),
    /// It was answered with this JSON.
    Replied(String),
    /// The claim is lost.
    Lost,
}

impl PgStore {
    /// Commits the intent of a call, or says what is known of it.
    pub fn intend<'a>(&'a self, table: &'a AdoptedTable, row: &'a RowToken, key: &'a str) -> Fut<'a, Intent> {
        const DOING: &str = "record intent";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let mine = sqlx::query(table.sql.adopt_effect_begin.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(key)
                .bind(self.0.now())
                .fetch_optional(lent.pg())
                .await
                .doing(DOING)?;
            let intent = match mine {
                Some(mine) => Intent::First(rows::at(&mine, "made_at").doing(DOING)?),
                None => {
                    let known = sqlx::query(table.sql.adopt_effect_known.clone())
                        .persistent(self.0.named())
                        .bind(&row.id)
                        .bind(row.token)
                        .bind(key)
                        .fetch_one(lent.pg())
                        .await
                        .doing(DOING)?;
                    let held: bool = known.try_get("held").doing(DOING)?;
                    let answer: Option<String> = known.try_get("answer").doing(DOING)?;
                    match (held, answer, rows::maybe_at(&known, "made_at").doing(DOING)?) {
                        (true, Some(answer), _) => Intent::Replied(answer),
                        (true, None, Some(made_at)) => Intent::Open(made_at),
                        // Without an entry it was refused for the claim alone.
                        _ => Intent::Lost,
                    }
                }
            };
            lent.end(DOING).await?;
            Ok(intent)
        })
    }

    /// Stores a reply; `false` where the claim is lost.
    pub fn replied<'a>(
        &'a self,
        table: &'a AdoptedTable,
        row: &'a RowToken,
        (key, made_at): (&'a str, Timestamp),
        reply: &'a str,
    ) -> Fut<'a, bool> {
        const DOING: &str = "record reply";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let stored = sqlx::query(table.sql.adopt_effect_end.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(key)
                .bind(made_at.to_sqlx())
                .bind(reply)
                .bind(self.0.now())
                .fetch_optional(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            Ok(stored.is_some())
        })
    }

    /// Takes the intent of a call back that did not happen; nothing where the claim is lost, or where the intent is another.
    pub fn unintend<'a>(
        &'a self,
        table: &'a AdoptedTable,
        row: &'a RowToken,
        (key, made_at): (&'a str, Timestamp),
    ) -> Fut<'a, ()> {
        const DOING: &str = "undo intent";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            sqlx::query(table.sql.adopt_effect_take_back.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(key)
                .bind(made_at.to_sqlx())
                .execute(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await
        })
    }
}
