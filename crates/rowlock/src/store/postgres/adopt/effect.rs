//! External calls of rows, in the ledger: the intent before a call, the reply after it.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::{
    super::{Inner, PgStore, rows},
    AdoptedTable, RowToken,
};
use crate::{
    error::{Doing, Result},
    key::Fingerprint,
    store::Fut,
};

/// What the ledger contains about a call.
pub enum FoundCall {
    /// The claim is lost, so the ledger does not matter.
    ClaimLost,
    /// No entry.
    Nothing,
    /// An intent, with the reply as JSON if there was one.
    Call {
        made_at: Timestamp,
        fingerprint: Option<Fingerprint>,
        reply: Option<String>,
    },
}

/// The prefix of every ledger key of a row's calls.
pub fn call_prefix(row: Uuid) -> String {
    format!("row effect {row}:")
}

impl PgStore {
    /// Commits the intent of a call and returns its time; `None` if the claim is lost or the ledger has an intent.
    pub fn begin_call<'a>(
        &'a self,
        table: &'a AdoptedTable,
        row: &'a RowToken,
        (key, fingerprint): (&'a str, Option<Fingerprint>),
    ) -> Fut<'a, Option<Timestamp>> {
        const DOING: &str = "record intent";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let begun = sqlx::query(table.sql.adopt_effect_begin.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(key)
                .bind(self.0.now())
                .bind(fingerprint.as_ref().map(Fingerprint::as_bytes))
                .fetch_optional(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            begun.map(|begun| rows::at(&begun, "made_at")).transpose().doing(DOING)
        })
    }

    /// Reads what the ledger contains about a call.
    pub fn find_call<'a>(&'a self, table: &'a AdoptedTable, row: &'a RowToken, key: &'a str) -> Fut<'a, FoundCall> {
        const DOING: &str = "read intent";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let found = sqlx::query(table.sql.adopt_effect_known.clone())
                .persistent(self.0.named())
                .bind(&row.id)
                .bind(row.token)
                .bind(key)
                .fetch_one(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            if !found.try_get::<bool, _>("held").doing(DOING)? {
                return Ok(FoundCall::ClaimLost);
            }
            let Some(made_at) = rows::maybe_at(&found, "made_at").doing(DOING)? else {
                return Ok(FoundCall::Nothing);
            };
            let fingerprint: Option<Vec<u8>> = found.try_get("fingerprint").doing(DOING)?;
            Ok(FoundCall::Call {
                made_at,
                fingerprint: fingerprint.and_then(|bytes| Fingerprint::from_bytes(&bytes)),
                reply: found.try_get("answer").doing(DOING)?,
            })
        })
    }

    /// Stores the reply to the call that began at this time; `false` if nothing was written.
    pub fn store_reply<'a>(
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

    /// Removes the intent of a call that did not happen. Does nothing if the claim is lost, or if it is another intent.
    pub fn take_back_call<'a>(
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

    /// The names of the calls that this row has made since it was last kept, whatever their outcome.
    pub fn calls_of_row(&self, row: Uuid) -> Fut<'_, Vec<String>> {
        const DOING: &str = "list calls";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let prefix = call_prefix(row);
            let keys: Vec<String> = sqlx::query_scalar(self.0.sql.adopt_effect_of_row.clone())
                .persistent(self.0.named())
                .bind(&prefix)
                .bind(kept_mark(row))
                .fetch_all(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            let names = keys.iter().filter_map(|key| key.strip_prefix(&prefix));
            Ok(names.map(str::to_owned).collect())
        })
    }
}

/// Records that the row is kept: this commit ends the calls that the row has made until now.
pub(super) async fn mark_kept(inner: &Inner, pg: &mut PgConnection, row: Uuid) -> Result<()> {
    let mark = sqlx::query(inner.sql.adopt_effect_keep.clone()).persistent(inner.named());
    let mark = mark.bind(call_prefix(row)).bind(kept_mark(row)).bind(inner.now());
    mark.execute(pg).await.doing("settle row").map(drop)
}

fn kept_mark(row: Uuid) -> String {
    format!("row kept {row}")
}
