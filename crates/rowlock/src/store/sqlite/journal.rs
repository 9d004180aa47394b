//! Intents, replies, and what people found out. Every write is a turn of the writer, so calls that begin and end at the
//! same moment share a commit.

use sqlx::SqliteConnection;

use super::{SqliteStore, micros, setting, sql};
use crate::{
    effect::{Begun, CallEnd, EffectFilter, EffectView, Intent, Noted, Resolution},
    key::Fingerprint,
    store::{
        Fut,
        journal::{Journal, stored_reply},
        rows::{Columns, Noun, nouns},
    },
};

impl Journal for SqliteStore {
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(self.write("store the intent", intent.clone(), |db, now, intent| {
            Box::pin(begin(db, now, intent))
        }))
    }

    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(self.write("store the reply", end.clone(), |db, now, end| {
            Box::pin(finish(db, now, end))
        }))
    }

    fn effect(&self, no: i64) -> Fut<'_, Option<EffectView>> {
        Box::pin(self.read("read effect", async move |db, _| one(db, no).await))
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>> {
        Box::pin(self.read("list effects", async |db, _| list(db, filter).await))
    }

    fn effect_resolve<'a>(&'a self, no: i64, resolution: &'a Resolution, actor: &'a str) -> Fut<'a, Option<i64>> {
        let input = (no, resolution.clone(), actor.to_owned());
        Box::pin(self.write("resolve effect", input, |db, now, (no, resolution, actor)| {
            Box::pin(resolve(db, now, *no, resolution, actor))
        }))
    }
}

async fn begin(db: &mut SqliteConnection, now: i64, intent: &Intent) -> sqlx::Result<Begun> {
    let found = sqlx::query(sql::EFFECT_BEGIN)
        .bind(intent.token.id)
        .bind(intent.token.epoch)
        .bind(intent.token.worker.0)
        .bind(&intent.name)
        .bind(&intent.key)
        .bind(intent.policy.as_str())
        .bind(intent.fingerprint.as_ref().map(Fingerprint::as_bytes))
        .bind(micros(intent.limit))
        .bind(now)
        .bind(intent.again)
        .fetch_all(db)
        .await?;
    let before = Begun::of(found.first().ok_or(sqlx::Error::RowNotFound)?)?;
    let Some(stored) = found.get(1) else {
        return Ok(before);
    };
    Ok(Begun::Go {
        no: stored.read("no")?,
        since: stored.read("begun_at")?,
        doubted: matches!(before, Begun::Known(known) if known.state == "open" && !known.own),
    })
}

async fn finish(db: &mut SqliteConnection, now: i64, end: &CallEnd) -> sqlx::Result<Noted> {
    let row = sqlx::query(sql::EFFECT_END)
        .bind(end.token.id)
        .bind(end.token.epoch)
        .bind(end.token.worker.0)
        .bind(&end.name)
        .bind(end.state.as_str())
        .bind(&end.reply)
        .bind(&end.error)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    if row.is_some() {
        return Ok(Noted::Yes);
    }
    let row = sqlx::query(sql::EFFECT_KNOWN)
        .bind(end.token.id)
        .bind(end.token.epoch)
        .bind(end.token.worker.0)
        .bind(&end.name)
        .fetch_one(db)
        .await?;
    Ok(Noted::instead(Begun::of(&row)?, end.state))
}

async fn one(db: &mut SqliteConnection, no: i64) -> sqlx::Result<Option<EffectView>> {
    let row = sqlx::query(sql::EFFECT).bind(no).fetch_optional(db).await?;
    row.as_ref().map(Noun::of).transpose()
}

async fn list(db: &mut SqliteConnection, filter: &EffectFilter) -> sqlx::Result<Vec<EffectView>> {
    let asked = match (filter.job, filter.doubtful) {
        (Some(job), doubtful) => sqlx::query(sql::EFFECTS_OF).bind(job).bind(doubtful),
        (None, true) => sqlx::query(sql::EFFECTS_DOUBTFUL),
        (None, false) => sqlx::query(sql::EFFECTS),
    };
    let found = asked.bind(i64::from(filter.limit)).fetch_all(db).await?;
    nouns(&found)
}

async fn resolve(
    db: &mut SqliteConnection,
    now: i64,
    no: i64,
    resolution: &Resolution,
    actor: &str,
) -> sqlx::Result<Option<i64>> {
    let state = resolution.state().as_str();
    let resolved: Option<(i64, String)> = sqlx::query_as(sql::EFFECT_RESOLVE)
        .bind(no)
        .bind(state)
        .bind(stored_reply(resolution))
        .bind(actor)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    let Some((job, name)) = resolved else { return Ok(None) };
    let detail = format!("effect {no} \"{name}\" is {state}");
    setting::audit(db, now, (actor, "resolve effect"), job, Some(&detail)).await?;
    Ok(Some(job))
}
