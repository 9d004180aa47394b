//! Intents, replies and resolutions.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use crate::store::postgres::Inner;
use crate::{
    effect::{Begun, CallEnd, EffectView, Intent, Noted, Resolution},
    error::Result,
    key::Fingerprint,
    lease::Token,
    store::{
        action::Verdict,
        journal::{EffectQuery, stored_reply},
        rows::{Columns, Noun},
    },
};

pub async fn begin(inner: &Inner, intent: &Intent) -> Result<Begun> {
    let begin = inner
        .query(&inner.sql.effect_begin)
        .bind(intent.token.id)
        .bind(intent.token.epoch)
        .bind(intent.token.worker.0)
        .bind(&intent.name)
        .bind(&intent.key)
        .bind(intent.policy.as_str())
        .bind(intent.fingerprint.as_ref().map(Fingerprint::as_bytes))
        .bind(i64::try_from(intent.limit.as_micros()).unwrap_or(i64::MAX))
        .bind(inner.now())
        .bind(intent.again);
    inner
        .run("store the intent", async |pg| {
            match begin.fetch_optional(&mut *pg).await? {
                Some(row) => Ok(go(&row)?),
                None => Ok(known(inner, pg, intent.token, &intent.name).await?),
            }
        })
        .await
}

fn go(row: &PgRow) -> sqlx::Result<Begun> {
    Ok(Begun::Go {
        no: row.try_get("no")?,
        since: row.read("begun_at")?,
        doubted: row.try_get::<Option<bool>, _>("doubted")?.unwrap_or(false),
    })
}

/// A separate statement: the previous statement's snapshot is older than the locks that it may have waited for.
async fn known(inner: &Inner, pg: &mut PgConnection, token: Token, name: &str) -> sqlx::Result<Begun> {
    let read = inner.query(&inner.sql.effect_known).bind(token.id).bind(token.epoch);
    let row = read.bind(token.worker.0).bind(name).fetch_one(pg).await?;
    Begun::of(&row)
}

pub async fn end(inner: &Inner, end: &CallEnd) -> Result<Noted> {
    let write = inner
        .query(&inner.sql.effect_end)
        .bind(end.token.id)
        .bind(end.token.epoch)
        .bind(end.token.worker.0)
        .bind(&end.name)
        .bind(end.state.as_str())
        .bind(&end.reply)
        .bind(&end.error)
        .bind(inner.now());
    inner
        .run("store the reply", async |pg| {
            match write.fetch_optional(&mut *pg).await? {
                Some(_) => Ok(Noted::Yes),
                None => Ok(Noted::instead(known(inner, pg, end.token, &end.name).await?, end.state)),
            }
        })
        .await
}

pub async fn list(inner: &Inner, which: EffectQuery<'_>) -> Result<Vec<EffectView>> {
    let filter = match which {
        EffectQuery::One(no) => return inner.list("read effect", inner.query(&inner.sql.effect).bind(no)).await,
        EffectQuery::Filter(filter) => filter,
    };
    let read = match (filter.job, filter.doubtful) {
        (Some(job), doubtful) => inner.query(&inner.sql.effects_of).bind(job).bind(doubtful),
        (None, true) => inner.query(&inner.sql.effects_doubtful),
        (None, false) => inner.query(&inner.sql.effects),
    };
    inner.list("list effects", read.bind(i64::from(filter.limit))).await
}

/// Two statements: the second statement's snapshot is newer than the call that the first waited for.
pub async fn resolve(inner: &Inner, no: i64, resolution: &Resolution, actor: &str) -> Result<Verdict> {
    let lock = inner.query(&inner.sql.effect_lock).bind(no);
    let resolve = inner
        .query_scalar(&inner.sql.effect_resolve)
        .bind(no)
        .bind(resolution.state().as_str())
        .bind(stored_reply(resolution))
        .bind(actor)
        .bind(inner.now());
    inner
        .run("resolve effect", async |pg| {
            let mut tx = pg.begin().await?;
            lock.fetch_optional(&mut *tx).await?;
            let job: Option<i64> = resolve.fetch_optional(&mut *tx).await?;
            tx.commit().await?;
            Ok(Verdict::found(job.is_some()))
        })
        .await
}
