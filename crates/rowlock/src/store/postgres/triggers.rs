//! Hints from outside on PostgreSQL.

use jiff_sqlx::ToSqlx;
use sqlx::{Row, postgres::PgRow};
use uuid::Uuid;

use super::{Inner, PgStore, rows};
use crate::{
    error::{Doing, Error, Result},
    job::{queue_no, untriggered},
    observe::{Standing, Untaken},
    state::State,
    store::{
        Cursor, Fut,
        triggers::{Pulled, Triggers},
    },
};

impl Triggers for PgStore {
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>> {
        self.bounded("trigger", async move {
            trigger(&self.0, pointers).await.map_err(Error::answered)
        })
    }

    fn standing<'a>(&'a self, ids: &'a [i64]) -> Fut<'a, Vec<Standing>> {
        self.bounded("read job states", standing(&self.0, ids))
    }

    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>> {
        self.bounded("find untaken jobs", untaken(&self.0, which))
    }
}

async fn trigger(inner: &Inner, pointers: &[(i64, Uuid)]) -> Result<Vec<Pulled>> {
    let doing = "trigger";
    let (ids, uids): (Vec<i64>, Vec<Uuid>) = pointers.iter().copied().unzip();
    let mut lent = inner.engine.acquire().await.doing(doing)?;
    let pulled: Vec<(i64, i64)> = sqlx::query_as(inner.sql.trigger.clone())
        .persistent(inner.named())
        .bind(inner.now())
        .bind(ids)
        .bind(uids)
        .bind(untriggered().to_sqlx())
        .fetch_all(lent.pg())
        .await
        .doing(doing)?;
    lent.end(doing).await?;
    Ok(pulled.into_iter().map(|(id, epoch)| Pulled { id, epoch }).collect())
}

async fn standing(inner: &Inner, ids: &[i64]) -> Result<Vec<Standing>> {
    let doing = "read job states";
    let mut lent = inner.engine.acquire().await.doing(doing)?;
    let found = sqlx::query(inner.sql.standing.clone())
        .persistent(inner.named())
        .bind(inner.now())
        .bind(ids)
        .fetch_all(lent.pg())
        .await
        .doing(doing)?;
    lent.end(doing).await?;
    found.iter().map(read).collect::<sqlx::Result<_>>().doing(doing)
}

async fn untaken(inner: &Inner, which: &Untaken) -> Result<Vec<Standing>> {
    let doing = "find untaken jobs";
    let never = which.untriggered.then(untriggered);
    let first = (never.unwrap_or(Cursor::START.due_at), Cursor::START.id);
    let (due_at, id) = which.after.unwrap_or(first);
    let mut lent = inner.engine.acquire().await.doing(doing)?;
    let found = sqlx::query(inner.sql.untaken.clone())
        .persistent(inner.named())
        .bind(inner.now())
        .bind(i64::try_from(which.grace.as_micros()).unwrap_or(i64::MAX))
        .bind(queue_no(&which.queue))
        .bind(due_at.to_sqlx())
        .bind(id)
        .bind(never.map(ToSqlx::to_sqlx))
        .bind(i64::from(which.limit))
        .fetch_all(lent.pg())
        .await
        .doing(doing)?;
    lent.end(doing).await?;
    found.iter().map(read).collect::<sqlx::Result<_>>().doing(doing)
}

fn read(row: &PgRow) -> sqlx::Result<Standing> {
    let state: &str = row.try_get("state")?;
    Ok(Standing {
        id: row.try_get("id")?,
        uid: row.try_get("uid")?,
        queue: row.try_get("queue")?,
        group: row.try_get("in_group")?,
        state: rows::word(state, State::parse(state))?,
        epoch: row.try_get("epoch")?,
        due_at: rows::maybe_at(row, "due_at")?,
        due: row.try_get("due")?,
    })
}
