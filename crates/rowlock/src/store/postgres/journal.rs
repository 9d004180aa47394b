//! Intents, replies, and what people found out.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::{Inner, PgStore, rows};
use crate::{
    effect::{Begun, CallEnd, EffectFilter, EffectState, EffectView, Intent, Known, Noted, Resolution},
    error::{Doing, Result},
    key::Fingerprint,
    lease::Token,
    store::{Fut, journal::Journal},
};

impl Journal for PgStore {
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        self.bounded("store the intent", begin(&self.0, intent))
    }

    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        self.bounded("store the reply", finish(&self.0, end))
    }

    fn effect(&self, no: i64) -> Fut<'_, Option<EffectView>> {
        self.bounded("read effect", one(&self.0, no))
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>> {
        self.bounded("list effects", list(&self.0, filter))
    }

    fn effect_resolve<'a>(&'a self, no: i64, resolution: &'a Resolution, actor: &'a str) -> Fut<'a, Option<i64>> {
        self.bounded("resolve effect", resolve(&self.0, no, resolution, actor))
    }
}

async fn begin(inner: &Inner, intent: &Intent) -> Result<Begun> {
    const DOING: &str = "store the intent";
    let mut lent = inner.engine.acquire().await.doing(DOING)?;
    let limit_us = i64::try_from(intent.limit.as_micros()).unwrap_or(i64::MAX);
    let row = sqlx::query(inner.sql.effect_begin.clone())
        .bind(intent.token.id)
        .bind(intent.token.epoch)
        .bind(intent.token.worker.0)
        .bind(&intent.name)
        .bind(&intent.key)
        .bind(intent.policy.as_str())
        .bind(intent.fingerprint.as_ref().map(Fingerprint::as_bytes))
        .bind(limit_us)
        .bind(inner.now())
        .bind(intent.again)
        .fetch_optional(lent.pg())
        .await
        .doing(DOING)?;
    let begun = match row {
        Some(row) => go(&row).doing(DOING)?,
        None => known(inner, lent.pg(), intent.token, &intent.name, DOING).await?,
    };
    lent.end(DOING).await?;
    Ok(begun)
}

fn go(row: &PgRow) -> sqlx::Result<Begun> {
    Ok(Begun::Go {
        no: row.try_get("no")?,
        since: rows::at(row, "begun_at")?,
        doubted: row.try_get::<Option<bool>, _>("doubted")?.unwrap_or(false),
    })
}

/// A statement of its own: the snapshot of the one before it is older than the locks that it may have waited for.
async fn known(inner: &Inner, pg: &mut PgConnection, token: Token, name: &str, doing: &'static str) -> Result<Begun> {
    let row = sqlx::query(inner.sql.effect_known.clone())
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .bind(name)
        .fetch_one(pg)
        .await
        .doing(doing)?;
    read_known(&row).doing(doing)
}

fn read_known(row: &PgRow) -> sqlx::Result<Begun> {
    let no: Option<i64> = row.try_get("no")?;
    let (true, Some(no)) = (row.try_get("held")?, no) else {
        return Ok(Begun::LeaseLost);
    };
    let fingerprint: Option<Vec<u8>> = row.try_get("fingerprint")?;
    Ok(Begun::Known(Known {
        no,
        state: row.try_get("state")?,
        own: row.try_get("own")?,
        fingerprint: fingerprint.and_then(|bytes| Fingerprint::from_bytes(&bytes)),
        since: rows::at(row, "begun_at")?,
        reply: row.try_get("reply")?,
        error: row.try_get("error")?,
    }))
}

async fn finish(inner: &Inner, end: &CallEnd) -> Result<Noted> {
    const DOING: &str = "store the reply";
    let mut lent = inner.engine.acquire().await.doing(DOING)?;
    let row = sqlx::query(inner.sql.effect_end.clone())
        .bind(end.token.id)
        .bind(end.token.epoch)
        .bind(end.token.worker.0)
        .bind(&end.name)
        .bind(end.state.as_str())
        .bind(&end.reply)
        .bind(&end.error)
        .bind(inner.now())
        .fetch_optional(lent.pg())
        .await
        .doing(DOING)?;
    let noted = match row {
        Some(_) => Noted::Yes,
        None => {
            let known = known(inner, lent.pg(), end.token, &end.name, DOING).await?;
            Noted::instead(known, end.state)
        }
    };
    lent.end(DOING).await?;
    Ok(noted)
}

async fn one(inner: &Inner, no: i64) -> Result<Option<EffectView>> {
    let mut lent = inner.engine.acquire().await.doing("read effect")?;
    let row = sqlx::query(inner.sql.effect.clone())
        .bind(no)
        .fetch_optional(lent.pg())
        .await
        .doing("read effect")?;
    lent.end("read effect").await?;
    row.as_ref().map(view).transpose().doing("read effect")
}

async fn list(inner: &Inner, filter: &EffectFilter) -> Result<Vec<EffectView>> {
    let mut lent = inner.engine.acquire().await.doing("list effects")?;
    let asked = match (filter.job, filter.doubtful) {
        (Some(job), doubtful) => sqlx::query(inner.sql.effects_of.clone()).bind(job).bind(doubtful),
        (None, true) => sqlx::query(inner.sql.effects_doubtful.clone()),
        (None, false) => sqlx::query(inner.sql.effects.clone()),
    };
    let found = asked
        .bind(i64::from(filter.limit))
        .fetch_all(lent.pg())
        .await
        .doing("list effects")?;
    lent.end("list effects").await?;
    found
        .iter()
        .map(view)
        .collect::<sqlx::Result<_>>()
        .doing("list effects")
}

fn view(row: &PgRow) -> sqlx::Result<EffectView> {
    let state: String = row.try_get("state")?;
    Ok(EffectView {
        no: row.try_get("no")?,
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        queue: row.try_get("queue")?,
        name: row.try_get("name")?,
        key: row.try_get("key")?,
        state: rows::word(&state, EffectState::parse(&state))?,
        policy: row.try_get("policy")?,
        tries: row.try_get("tries")?,
        begun_at: rows::at(row, "begun_at")?,
        deadline_at: rows::at(row, "deadline_at")?,
        ended_at: rows::maybe_at(row, "ended_at")?,
        reply: rows::json(row.try_get("reply")?)?,
        error: row.try_get("error")?,
        resolved_by: row.try_get("resolved_by")?,
    })
}

/// Two statements: the second one's snapshot is newer than the call that the first one waited for.
async fn resolve(inner: &Inner, no: i64, resolution: &Resolution, actor: &str) -> Result<Option<i64>> {
    const DOING: &str = "resolve effect";
    let mut lent = inner.engine.acquire().await.doing(DOING)?;
    let mut tx = lent.pg().begin().await.doing(DOING)?;
    sqlx::query(inner.sql.effect_lock.clone())
        .bind(no)
        .fetch_optional(&mut *tx)
        .await
        .doing(DOING)?;
    let reply = match resolution {
        Resolution::Happened(reply) => Some(reply.to_string()),
        Resolution::NotHappened => None,
    };
    let job = sqlx::query_scalar(inner.sql.effect_resolve.clone())
        .bind(no)
        .bind(resolution.state().as_str())
        .bind(reply)
        .bind(actor)
        .bind(inner.now())
        .fetch_optional(&mut *tx)
        .await
        .doing(DOING)?;
    tx.commit().await.doing(DOING)?;
    lent.end(DOING).await?;
    Ok(job)
}
