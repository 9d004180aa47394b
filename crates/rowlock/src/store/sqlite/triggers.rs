//! Hints from outside on SQLite.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{SqliteStore, rows, sql};
use crate::{
    error::Error,
    job::{queue_no, untriggered},
    observe::{Standing, Untaken},
    store::{
        Fut,
        rows::nouns,
        triggers::{Pulled, Triggers, untaken_from},
    },
};

/// A pointer as the statement reads it.
#[derive(Serialize)]
struct PointerRow {
    id: i64,
    uid: Uuid,
}

impl Triggers for SqliteStore {
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>> {
        let pointers: Vec<PointerRow> = pointers
            .iter()
            .map(|(id, uid)| PointerRow { id: *id, uid: *uid })
            .collect();
        Box::pin(async move {
            let write = self.write("trigger", pointers, |db, now, pointers| {
                Box::pin(trigger(db, now, pointers))
            });
            write.await.map_err(Error::answered)
        })
    }

    fn standing<'a>(&'a self, ids: &'a [i64]) -> Fut<'a, Vec<Standing>> {
        Box::pin(self.read("read job states", async move |db, now| standing(db, now, ids).await))
    }

    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>> {
        Box::pin(self.read("find untaken jobs", async |db, now| untaken(db, now, which).await))
    }
}

async fn trigger(db: &mut SqliteConnection, now: i64, pointers: &[PointerRow]) -> sqlx::Result<Vec<Pulled>> {
    let asked = rows::array(pointers)?;
    let mut pulled = Vec::new();
    for text in [sql::TRIGGER, sql::TRIGGER_WAITING] {
        let query = sqlx::query_as(text).bind(&asked).bind(now);
        let rows: Vec<(i64, i64)> = query.bind(untriggered().as_microsecond()).fetch_all(&mut *db).await?;
        pulled.extend(rows.into_iter().map(|(id, epoch)| Pulled { id, epoch }));
    }
    Ok(pulled)
}

async fn standing(db: &mut SqliteConnection, now: i64, ids: &[i64]) -> sqlx::Result<Vec<Standing>> {
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
        .bind(which.max);
    nouns(&query.fetch_all(db).await?)
}
