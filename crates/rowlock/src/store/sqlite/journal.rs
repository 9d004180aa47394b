//! Intents, replies, and what people found out. Every write is a turn of the writer, so calls that begin and end at the
//! same moment share a commit.

use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::{SqliteStore, micros, rows, setting, sql};
use crate::{
    effect::{Begun, CallEnd, EffectFilter, EffectState, EffectView, Intent, Known, Noted, Resolution},
    key::Fingerprint,
    store::{Fut, journal::Journal},
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
        Box::pin(self.read("read effect", no, |db, _, no| Box::pin(one(db, *no))))
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>> {
        Box::pin(self.read("list effects", filter, |db, _, filter| Box::pin(list(db, filter))))
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
    let before = known(found.first().ok_or(sqlx::Error::RowNotFound)?)?;
    let Some(stored) = found.get(1) else {
        return Ok(before);
    };
    Ok(Begun::Go {
        no: stored.try_get("no")?,
        since: rows::at(stored, "begun_at")?,
        doubted: matches!(before, Begun::Known(known) if known.state == "open" && !known.own),
    })
}

fn known(row: &SqliteRow) -> sqlx::Result<Begun> {
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
    Ok(Noted::instead(known(&row)?, end.state))
}

async fn one(db: &mut SqliteConnection, no: i64) -> sqlx::Result<Option<EffectView>> {
    let row = sqlx::query(sql::EFFECT).bind(no).fetch_optional(db).await?;
    row.as_ref().map(view).transpose()
}

async fn list(db: &mut SqliteConnection, filter: &EffectFilter) -> sqlx::Result<Vec<EffectView>> {
    let asked = match (filter.job, filter.doubtful) {
        (Some(job), doubtful) => sqlx::query(sql::EFFECTS_OF).bind(job).bind(doubtful),
        (None, true) => sqlx::query(sql::EFFECTS_DOUBTFUL),
        (None, false) => sqlx::query(sql::EFFECTS),
    };
    let found = asked.bind(i64::from(filter.limit)).fetch_all(db).await?;
    found.iter().map(view).collect()
}

fn view(row: &SqliteRow) -> sqlx::Result<EffectView> {
    let state: &str = row.try_get("state")?;
    Ok(EffectView {
        no: row.try_get("no")?,
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        queue: row.try_get("queue")?,
        name: row.try_get("name")?,
        key: row.try_get("key")?,
        state: rows::word(state, EffectState::parse(state))?,
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

async fn resolve(
    db: &mut SqliteConnection,
    now: i64,
    no: i64,
    resolution: &Resolution,
    actor: &str,
) -> sqlx::Result<Option<i64>> {
    let reply = match resolution {
        Resolution::Happened(reply) => Some(reply.to_string()),
        Resolution::NotHappened => None,
    };
    let state = resolution.state().as_str();
    let resolved: Option<(i64, String)> = sqlx::query_as(sql::EFFECT_RESOLVE)
        .bind(no)
        .bind(state)
        .bind(reply)
        .bind(actor)
        .bind(now)
        .fetch_optional(&mut *db)
        .await?;
    let Some((job, name)) = resolved else { return Ok(None) };
    let detail = format!("effect {no} \"{name}\" is {state}");
    setting::audit(db, now, (actor, "resolve effect"), job, Some(&detail)).await?;
    Ok(Some(job))
}
