//! The journal's statements as single steps.

use jiff_sqlx::Timestamp;
use sqlx::{PgConnection, Row};

use super::{Held, sql};

const NAME: &str = "charge";

/// What is known of the effect, as a worker would read it: `None` when the token does not hold.
pub(crate) async fn known(pg: &mut PgConnection, held: Held) -> Option<String> {
    let row = sqlx::query(sql!("effect/known"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind(NAME)
        .fetch_one(pg)
        .await
        .unwrap();
    row.get::<bool, _>("held").then(|| {
        let state: Option<String> = row.get("state");
        state.unwrap_or_else(|| "no effect".into())
    })
}

/// Stores an intent; the effect's number when it may be called. `again`: although it is in doubt.
pub(crate) async fn begin(pg: &mut PgConnection, held: Held, again: bool) -> Option<i64> {
    let row = sqlx::query(sql!("effect/begin"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind(NAME)
        .bind("uid:charge")
        .bind(if again { "retry" } else { "park" })
        .bind(None::<Vec<u8>>)
        .bind(1_000_000i64)
        .bind(None::<Timestamp>)
        .bind(again)
        .fetch_optional(pg)
        .await
        .unwrap();
    row.map(|row| row.get("no"))
}

/// Stores a reply; whether it was.
pub(crate) async fn reply(pg: &mut PgConnection, held: Held) -> bool {
    end(pg, held, "replied").await
}

/// Stores how a call ended; whether it was.
pub(crate) async fn end(pg: &mut PgConnection, held: Held, state: &str) -> bool {
    let row = sqlx::query(sql!("effect/end"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind(NAME)
        .bind(state)
        .bind((state == "replied").then(|| format!("\"reply of epoch {}\"", held.epoch)))
        .bind((state != "replied").then_some("no answer"))
        .bind(None::<Timestamp>)
        .fetch_optional(pg)
        .await
        .unwrap();
    row.is_some()
}

/// Both halves of a resolution, in the given transaction; whether it was recorded.
pub(crate) async fn resolve(pg: &mut PgConnection, no: i64, state: &str) -> bool {
    sqlx::query(sql!("effect/lock"))
        .bind(no)
        .fetch_optional(&mut *pg)
        .await
        .unwrap();
    let row = sqlx::query(sql!("effect/resolve"))
        .bind(no)
        .bind(state)
        .bind((state == "replied").then_some("\"resolved\""))
        .bind("tester")
        .bind(None::<Timestamp>)
        .fetch_optional(pg)
        .await
        .unwrap();
    row.is_some()
}
