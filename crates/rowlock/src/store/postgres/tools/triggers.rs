//! Hints from outside on PostgreSQL.

use jiff_sqlx::ToSqlx;
use uuid::Uuid;

use crate::store::postgres::Inner;
use crate::{
    error::{Error, Result},
    job::{queue_no, untriggered},
    observe::{Standing, Untaken},
    store::triggers::{Pulled, StandingQuery, untaken_from},
};

pub async fn trigger(inner: &Inner, pointers: &[(i64, Uuid)]) -> Result<Vec<Pulled>> {
    let (ids, uids): (Vec<i64>, Vec<Uuid>) = pointers.iter().copied().unzip();
    let pull = inner
        .query_as(&inner.sql.trigger)
        .bind(inner.now())
        .bind(ids)
        .bind(uids);
    let pull = pull.bind(untriggered().to_sqlx());
    inner
        .run("trigger", async |pg| {
            let pulled: Vec<(i64, i64)> = pull.fetch_all(pg).await?;
            Ok(pulled.into_iter().map(|(id, epoch)| Pulled { id, epoch }).collect())
        })
        .await
        .map_err(Error::answered)
}

pub async fn standing(inner: &Inner, which: StandingQuery<'_>) -> Result<Vec<Standing>> {
    let ids = match which {
        StandingQuery::Of(ids) => ids,
        StandingQuery::Untaken(which) => return untaken(inner, which).await,
    };
    let read = inner.query(&inner.sql.standing).bind(inner.now()).bind(ids);
    inner.list("read job states", read).await
}

async fn untaken(inner: &Inner, which: &Untaken) -> Result<Vec<Standing>> {
    let (from, never) = untaken_from(which);
    let read = inner
        .query(&inner.sql.untaken)
        .bind(inner.now())
        .bind(i64::try_from(which.grace.as_micros()).unwrap_or(i64::MAX))
        .bind(queue_no(&which.queue))
        .bind(from.due_at.to_sqlx())
        .bind(from.id)
        .bind(never.map(ToSqlx::to_sqlx))
        .bind(i64::from(which.limit));
    inner.list("find untaken jobs", read).await
}
