//! Enqueue with keys. The first statement takes the free keys, and waits for open transactions that take the same keys.
//! A second statement reads the rest, because the first statement's snapshot is older than what it waited for.

use sqlx::{PgConnection, Row, postgres::PgRow};
use tokio::sync::SemaphorePermit;

use super::{Inner, by_key::ByKey, enqueue, run::Fault};
use crate::{
    error::{Error, Result},
    job::Draft,
    key::{Enqueued, Keyed},
    store::{
        keys::{Asking, Put, any_keyed, period_us},
        rows::nouns,
    },
};

/// How often a key may vanish between two statements, or be taken by another caller, before the caller must try again.
const ROUNDS_MAX: usize = 20;

/// A turn to write keys on an engine connection; enqueues without keys need none. Take the turn before the connection.
pub async fn turn(inner: &Inner, keyed: bool) -> Option<SemaphorePermit<'_>> {
    match keyed {
        // The semaphore is never closed.
        true => inner.keyed.acquire().await.ok(),
        false => None,
    }
}

/// Inserts what is new, in a transaction that the caller rolls back after a conflict.
pub async fn put(inner: &Inner, pg: &mut PgConnection, drafts: &[Draft], hint: bool) -> Result<Put, Fault> {
    if !any_keyed(drafts) {
        let ids = enqueue::enqueue_chunks(inner, pg, drafts, None, hint).await?;
        return Ok(Ok(ids.into_iter().map(|id| Enqueued::New(id.into())).collect()));
    }
    let mut asking = Asking::new(drafts);
    take_free(inner, pg, &mut asking).await?;
    if !asking.is_answered() {
        let by_key = ByKey::begin(inner, pg).await?;
        answer(inner, pg, &mut asking).await?;
        by_key.end(inner, pg).await?;
    }
    let decided = match asking.decided() {
        Ok(decided) => decided,
        Err(conflict) => return Ok(Err(conflict)),
    };
    let reserved = decided.won_ids();
    let ids = enqueue::enqueue_chunks(inner, pg, &decided.new_drafts(), Some(&reserved), hint).await?;
    Ok(Ok(decided.answer(&ids)))
}

async fn answer(inner: &Inner, pg: &mut PgConnection, asking: &mut Asking<'_>) -> Result<(), Fault> {
    for _ in 0..ROUNDS_MAX {
        let keys: Vec<&str> = asking.open().iter().map(|k| k.key.as_str()).collect();
        let found = inner
            .query(&inner.sql.job_key_read)
            .bind(keys)
            .bind(inner.now())
            .fetch_all(&mut *pg)
            .await?;
        let over = asking.met(nouns(&found)?);
        if !over.is_empty() {
            take_over(inner, pg, asking, &over).await?;
        }
        if !asking.is_answered() {
            take_free(inner, pg, asking).await?;
        }
        if asking.is_answered() {
            return Ok(());
        }
    }
    let again = Error::TryAgain {
        doing: "enqueue",
        source: sqlx::Error::RowNotFound,
    };
    Err(again.into())
}

async fn take_free(inner: &Inner, pg: &mut PgConnection, asking: &mut Asking<'_>) -> sqlx::Result<()> {
    let (open, ranks): (Vec<&Keyed>, Vec<i32>) = asking.open_as_given().into_iter().unzip();
    let taken = inner
        .query(&inner.sql.job_key_put)
        .bind(column(&open, |k| k.key.as_str()))
        .bind(column(&open, |k| k.fingerprint.as_bytes()))
        .bind(column(&open, |k| k.hold.as_str()))
        .bind(column(&open, period_us))
        .bind(ranks)
        .bind(inner.now())
        .fetch_all(pg)
        .await?;
    won(asking, &taken)
}

/// No row for a key means that another enqueue was first; the next round reads the key.
async fn take_over(
    inner: &Inner,
    pg: &mut PgConnection,
    asking: &mut Asking<'_>,
    over: &[(&Keyed, i64)],
) -> sqlx::Result<()> {
    let keyed: Vec<&Keyed> = over.iter().map(|(keyed, _)| *keyed).collect();
    let taken = inner
        .query(&inner.sql.job_key_take)
        .bind(column(&keyed, |k| k.key.as_str()))
        .bind(column(&keyed, |k| k.fingerprint.as_bytes()))
        .bind(column(&keyed, |k| k.hold.as_str()))
        .bind(column(&keyed, period_us))
        .bind(over.iter().map(|(_, old_id)| *old_id).collect::<Vec<_>>())
        .bind(inner.now())
        .fetch_all(pg)
        .await?;
    won(asking, &taken)
}

fn won(asking: &mut Asking<'_>, taken: &[PgRow]) -> sqlx::Result<()> {
    for row in taken {
        asking.won(row.try_get("key")?, row.try_get("id")?);
    }
    Ok(())
}

fn column<'a, T>(keyed: &[&'a Keyed], f: impl Fn(&'a Keyed) -> T) -> Vec<T> {
    keyed.iter().map(|k| f(k)).collect()
}
