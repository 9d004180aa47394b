//! Hints from outside on SQLite.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::store::sqlite::{rows, sql};
use crate::{
    job::{queue_no, untriggered},
    observe::{Standing, Untaken},
    store::{
        rows::nouns,
        triggers::{Pulled, StandingQuery, untaken_from},
    },
};

/// One pointer in the array that the statement reads.
#[derive(Serialize)]
struct PointerRow {
    id: i64,
    uid: Uuid,
}

pub async fn trigger(db: &mut SqliteConnection, now: i64, pointers: &[(i64, Uuid)]) -> sqlx::Result<Vec<Pulled>> {
    let pointers = pointers.iter().map(|(id, uid)| PointerRow { id: *id, uid: *uid });
    let asked = rows::array(&pointers.collect::<Vec<_>>())?;
    let mut pulled = Vec::new();
    for text in [sql::TRIGGER, sql::TRIGGER_WAITING] {
        let query = sqlx::query_as(text).bind(&asked).bind(now);
        let rows: Vec<(i64, i64)> = query.bind(untriggered().as_microsecond()).fetch_all(&mut *db).await?;
        pulled.extend(rows.into_iter().map(|(id, epoch)| Pulled { id, epoch }));
    }
    Ok(pulled)
}

pub async fn standing(db: &mut SqliteConnection, now: i64, which: StandingQuery<'_>) -> sqlx::Result<Vec<Standing>> {
    let ids = match which {
        StandingQuery::Of(ids) => ids,
        StandingQuery::Untaken(which) => return untaken(db, now, which).await,
    };
    let query = sqlx::query(sql::STANDING).bind(rows::array(ids)?).bind(now);
    nouns(&query.fetch_all(db).await?)
}

async fn untaken(db: &mut SqliteConnection, now: i64, which: &Untaken) -> sqlx::Result<Vec<Standing>> {
    let grace = i64::try_from(which.grace.as_micros()).unwrap_or(i64::MAX);
    let (from, never) = untaken_from(which);
    let query = sqlx::query(sql::UNTAKEN)
        .bind(now)
        .bind(now.saturating_sub(grace))
        .bind(queue_no(&which.queue))
        .bind(from.due_at.as_microsecond())
        .bind(from.id)
        .bind(never.map(Timestamp::as_microsecond))
        .bind(which.limit);
    nouns(&query.fetch_all(db).await?)
}
