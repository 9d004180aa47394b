//! Breakers on SQLite, under its single writer.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::{SqliteStore, claim, rows, setting::audit, sql};
use crate::{
    breaker::{Breaker, BreakerChange, BreakerState, BreakerView, Force, Note, Trying},
    store::{
        ClaimAsk, ClaimReply, Fut,
        breaker::{Breakers, ProbeReply},
        rows::nouns,
    },
};

impl Breakers for SqliteStore {
    fn declare_breakers<'a>(&'a self, breakers: &'a [(String, Breaker)], by: &'a str) -> Fut<'a, ()> {
        let input = (breakers.to_vec(), by.to_owned());
        Box::pin(self.write("declare breakers", input, |db, now, (breakers, by)| {
            Box::pin(async move {
                for (name, breaker) in breakers {
                    let declare = sqlx::query(sql::BREAKER_DECLARE).bind(name).bind(breaker.threshold);
                    let declare = declare.bind(breaker.cooldown_us()).bind(breaker.cooldown_max_us());
                    declare
                        .bind(breaker.probes)
                        .bind(now)
                        .bind(by)
                        .execute(&mut *db)
                        .await?;
                }
                Ok(())
            })
        }))
    }

    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>> {
        Box::pin(self.read("read breakers", async move |db, now| read(db, now, names).await))
    }

    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>> {
        Box::pin(self.read("read breaker log", async move |db, _| {
            nouns(&sqlx::query(sql::BREAKER_LOG).bind(name).bind(max).fetch_all(db).await?)
        }))
    }

    fn note_breaker<'a>(&'a self, note: &'a Note) -> Fut<'a, Option<BreakerView>> {
        Box::pin(self.write("update breaker", note.clone(), |db, now, note| {
            Box::pin(async move {
                let Some(before) = one(db, now, &note.name).await? else {
                    return Ok(None);
                };
                match before.noted(note, rows::time(now)?) {
                    Some(after) => Ok(moved(db, &before, &after).await?.then_some(after)),
                    None => Ok(None),
                }
            })
        }))
    }

    fn force_breaker<'a>(&'a self, name: &'a str, force: Force, actor: &'a str) -> Fut<'a, Option<bool>> {
        let input = (name.to_owned(), force, actor.to_owned());
        Box::pin(self.write("force breaker", input, |db, now, (name, force, actor)| {
            Box::pin(async move {
                let Some(before) = one(db, now, name).await? else {
                    return Ok(None);
                };
                let Some(after) = before.forced(*force, actor, rows::time(now)?) else {
                    return Ok(Some(false));
                };
                let forced = moved(db, &before, &after).await?;
                let detail = format!("{name} {}", force.as_str());
                audit(db, now, (actor, "breaker"), 0, Some(&detail)).await?;
                Ok(Some(forced))
            })
        }))
    }

    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply> {
        let input = (names.to_vec(), ask.clone(), by.to_owned());
        Box::pin(self.write("claim a probe", input, |db, now, (names, ask, by)| {
            Box::pin(async move { probe(db, now, names, ask, by).await })
        }))
    }
}

async fn probe(
    db: &mut SqliteConnection,
    now: i64,
    names: &[String],
    ask: &ClaimAsk,
    by: &str,
) -> sqlx::Result<ProbeReply> {
    let mut trying = Trying::new(ask.alone);
    for name in names {
        let Some(mut breaker) = one(db, now, name).await? else {
            return Ok(ProbeReply::NotNow);
        };
        if let Some(half_open) = breaker.probed(by, rows::time(now)?) {
            moved(db, &breaker, &half_open).await?;
            breaker = half_open;
        }
        match breaker.state {
            BreakerState::Closed => {}
            BreakerState::Open => return Ok(ProbeReply::NotNow),
            BreakerState::HalfOpen => {
                sqlx::query(sql::PROBE_SWEEP).bind(name).execute(&mut *db).await?;
                let count = sqlx::query_scalar(sql::PROBE_COUNT).bind(name);
                let probing: i32 = count.fetch_one(&mut *db).await?;
                trying.add(&breaker, probing);
            }
        }
    }
    if trying.tried.is_empty() {
        return Ok(ProbeReply::NotNow);
    }
    if trying.left(0) == 0 {
        return Ok(ProbeReply::Full);
    }
    let mut jobs = Vec::new();
    for part in ask.parts() {
        let left = trying.left(jobs.len());
        if left == 0 {
            break;
        }
        match claim::claim(db, now, &part.up_to(left)).await? {
            ClaimReply::Jobs(more) => jobs.extend(more),
            reply => {
                let tried = trying.tried;
                return Ok(ProbeReply::Claimed { tried, reply });
            }
        }
    }
    let tokens: Vec<_> = jobs.iter().map(|job| (job.token.id, job.token.epoch)).collect();
    for (name, _) in &trying.tried {
        let put = sqlx::query(sql::PROBE_PUT).bind(name).bind(rows::array(&tokens)?);
        put.bind(ask.worker.0).execute(&mut *db).await?;
    }
    Ok(ProbeReply::Claimed {
        tried: trying.tried,
        reply: ClaimReply::Jobs(jobs),
    })
}

/// Which of these are closed.
pub async fn closed(db: &mut SqliteConnection, names: &[&str]) -> sqlx::Result<Vec<String>> {
    let closed = sqlx::query_scalar(sql::BREAKERS_CLOSED).bind(rows::array(names)?);
    closed.fetch_all(db).await
}

async fn one(db: &mut SqliteConnection, now: i64, name: &str) -> sqlx::Result<Option<BreakerView>> {
    let found = read(db, now, Some(&[name.to_owned()])).await?;
    Ok(found.into_iter().next())
}

async fn read(db: &mut SqliteConnection, now: i64, names: Option<&[String]>) -> sqlx::Result<Vec<BreakerView>> {
    let names = names.map(rows::array).transpose()?;
    let found = sqlx::query(sql::BREAKERS).bind(names).bind(now).fetch_all(db).await?;
    nouns(&found)
}

async fn moved(db: &mut SqliteConnection, before: &BreakerView, after: &BreakerView) -> sqlx::Result<bool> {
    let set = sqlx::query(sql::BREAKER_SET)
        .bind(&after.name)
        .bind(before.version)
        .bind(after.state.as_str())
        .bind(after.forced)
        .bind(after.failures)
        .bind(after.trips)
        .bind(after.open_until.map(Timestamp::as_microsecond))
        .bind(after.version)
        .bind(after.changed_at.as_microsecond())
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(&mut *db)
        .await?;
    if set.rows_affected() == 0 || after.version == before.version {
        return Ok(set.rows_affected() > 0);
    }
    sqlx::query(sql::BREAKER_LOGGED)
        .bind(&after.name)
        .bind(after.version)
        .bind(before.state.as_str())
        .bind(after.state.as_str())
        .bind(after.forced)
        .bind(after.changed_at.as_microsecond())
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(db)
        .await?;
    Ok(true)
}
