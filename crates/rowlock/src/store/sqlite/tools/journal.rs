//! Intents, replies and resolutions. Every write is a turn of the writer, so calls that begin and end at the same
//! moment share a commit.

use sqlx::SqliteConnection;

use crate::store::sqlite::{micros, operate::audit, sql};
use crate::{
    effect::{Begun, CallEnd, EffectView, Intent, Noted, Resolution},
    key::Fingerprint,
    store::{
        action::Verdict,
        journal::{EffectQuery, stored_reply},
        rows::{Columns, Noun, nouns},
    },
};

pub async fn begin(db: &mut SqliteConnection, now: i64, intent: &Intent) -> sqlx::Result<Begun> {
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

pub async fn end(db: &mut SqliteConnection, now: i64, end: &CallEnd) -> sqlx::Result<Noted> {
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

pub async fn list(db: &mut SqliteConnection, which: EffectQuery<'_>) -> sqlx::Result<Vec<EffectView>> {
    let filter = match which {
        EffectQuery::One(no) => return nouns(&sqlx::query(sql::EFFECT).bind(no).fetch_all(db).await?),
        EffectQuery::Filter(filter) => filter,
    };
    let read = match (filter.job, filter.doubtful) {
        (Some(job), doubtful) => sqlx::query(sql::EFFECTS_OF).bind(job).bind(doubtful),
        (None, true) => sqlx::query(sql::EFFECTS_DOUBTFUL),
        (None, false) => sqlx::query(sql::EFFECTS),
    };
    nouns(&read.bind(i64::from(filter.limit)).fetch_all(db).await?)
}

pub async fn resolve(
    db: &mut SqliteConnection,
    now: i64,
    no: i64,
    resolution: &Resolution,
    actor: &str,
) -> sqlx::Result<Verdict> {
    let state = resolution.state().as_str();
    let resolved: Option<(i64, String)> = sqlx::query_as(sql::EFFECT_RESOLVE)
        .bind(no)
        .bind(state)
        .bind(stored_reply(resolution))
        .bind(actor)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    let Some((job, name)) = resolved else {
        return Ok(Verdict::Elsewhere);
    };
    let detail = format!("effect {no} \"{name}\" is {state}");
    audit(db, now, (actor, "resolve effect"), job, Some(&detail)).await?;
    Ok(Verdict::Done)
}
