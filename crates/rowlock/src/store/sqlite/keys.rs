//! Enqueue with keys. The first statement takes the free keys and with them the write lock, so later reads stay valid
//! until the transaction ends.

use serde::Serialize;
use sqlx::{Row, SqliteConnection};

use super::{enqueue, rows, sql};
use crate::{
    job::Draft,
    key::{Enqueued, Keyed},
    store::{
        keys::{Asking, Put, any_keyed, period_us},
        rows::nouns,
    },
};

/// One element of the array that `key/put.sql` and `key/take.sql` read.
#[derive(Serialize)]
struct KeyRow<'a> {
    key: &'a str,
    fingerprint: String,
    hold: &'a str,
    period_us: Option<i64>,
    id: i64,
    old_id: i64,
}

impl<'a> KeyRow<'a> {
    fn of(keyed: &'a Keyed, id: i64, old_id: i64) -> KeyRow<'a> {
        let hex = keyed.fingerprint.as_bytes().iter().map(|byte| format!("{byte:02x}"));
        KeyRow {
            key: &keyed.key,
            fingerprint: hex.collect(),
            hold: keyed.hold.as_str(),
            period_us: period_us(keyed),
            id,
            old_id,
        }
    }
}

/// Inserts what is new, in the transaction that is open.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Put> {
    if !any_keyed(drafts) {
        let ids = enqueue::enqueue(db, now, drafts).await?;
        return Ok(Ok(ids.into_iter().map(|id| Enqueued::New(id.into())).collect()));
    }
    let mut asking = Asking::new(drafts);
    answer(db, now, &mut asking).await?;
    let decided = match asking.decided() {
        Ok(decided) => decided,
        Err(conflict) => return Ok(Err(conflict)),
    };
    let new = decided.new_drafts();
    let ids = enqueue::enqueue(db, now, &new).await?;
    let mut named = Vec::new();
    for ((draft, id), old_id) in new.iter().zip(&ids).zip(decided.won_ids()) {
        if let (Some(keyed), Some(old_id)) = (draft.key.as_deref(), old_id) {
            named.push(KeyRow::of(keyed, *id, old_id));
        }
    }
    let taken = sqlx::query(sql::JOB_KEY_TAKE)
        .bind(rows::array(&named)?)
        .bind(now)
        .fetch_all(db)
        .await?;
    if taken.len() != named.len() {
        // This cannot happen under the write lock; if it does, nothing may be kept.
        return Err(sqlx::Error::RowNotFound);
    }
    Ok(Ok(decided.answer(&ids)))
}

async fn answer(db: &mut SqliteConnection, now: i64, asking: &mut Asking<'_>) -> sqlx::Result<()> {
    let open: Vec<KeyRow> = asking.open().into_iter().map(|k| KeyRow::of(k, 0, 0)).collect();
    let free = sqlx::query(sql::JOB_KEY_PUT)
        .bind(rows::array(&open)?)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    for row in &free {
        asking.won(row.try_get("key")?, row.try_get("id")?);
    }
    if asking.is_answered() {
        return Ok(());
    }
    let keys: Vec<&str> = asking.open().iter().map(|k| k.key.as_str()).collect();
    let found = sqlx::query(sql::JOB_KEY_READ)
        .bind(rows::array(&keys)?)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    for (keyed, old_id) in asking.met(nouns(&found)?) {
        asking.won(&keyed.key, old_id);
    }
    Ok(())
}

/// The savepoint around an operation that may meet a conflict. Other operations may share the transaction.
const UNDER: &str = "savepoint rowlock_keys";

/// Makes the savepoint; [`end`] ends it.
pub async fn begin(db: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::raw_sql(UNDER).execute(db).await.map(drop)
}

/// Keeps what was written since [`begin`], or rolls it back.
pub async fn end(db: &mut SqliteConnection, keep: bool) -> sqlx::Result<()> {
    let end = match keep {
        true => "release savepoint rowlock_keys",
        false => "rollback to savepoint rowlock_keys; release savepoint rowlock_keys",
    };
    sqlx::raw_sql(end).execute(db).await.map(drop)
}
