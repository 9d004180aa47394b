//! Hints from outside on SQLite.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

use super::{SqliteStore, rows, sql};
use crate::{
    error::Error,
    job::{queue_no, untriggered},
    observe::{Standing, Untaken},
    state::State,
    store::{
        Cursor, Fut,
        triggers::{Pulled, Triggers},
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
        Box::pin(self.read("read job states", ids.to_vec(), |db, now, ids| {
            Box::pin(standing(db, now, ids))
        }))
    }

    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>> {
        Box::pin(self.read("find untaken jobs", which.clone(), |db, now, which| {
            Box::pin(untaken(db, now, which))
        }))
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
    query.fetch_all(db).await?.iter().map(read).collect()
}

async fn untaken(db: &mut SqliteConnection, now: i64, which: &Untaken) -> sqlx::Result<Vec<Standing>> {
    let grace = i64::try_from(which.grace.as_micros()).unwrap_or(i64::MAX);
    let never = which.untriggered.then(untriggered);
    let first = (never.unwrap_or(Cursor::START.due_at), Cursor::START.id);
    let (due_at, id) = which.after.unwrap_or(first);
    let query = sqlx::query(sql::UNTAKEN)
        .bind(now)
        .bind(now.saturating_sub(grace))
        .bind(queue_no(&which.queue))
        .bind(due_at.as_microsecond())
        .bind(id)
        .bind(never.map(Timestamp::as_microsecond))
        .bind(which.limit);
    query.fetch_all(db).await?.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> sqlx::Result<Standing> {
    let state: &str = row.try_get("state")?;
    Ok(Standing {
        id: row.try_get("id")?,
        uid: rows::uid(row)?,
        queue: row.try_get("queue")?,
        group: row.try_get("in_group")?,
        state: rows::word(state, State::parse(state))?,
        epoch: row.try_get("epoch")?,
        due_at: rows::maybe_at(row, "due_at")?,
        due: row.try_get("due")?,
    })
}
