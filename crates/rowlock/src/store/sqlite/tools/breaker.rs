//! Breakers on SQLite, under its single writer.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use crate::store::sqlite::{claim, operate::audit, rows, sql};
use crate::{
    breaker::{Breaker, BreakerState, BreakerView, Force, Note, Trying},
    store::{ClaimAsk, ClaimReply, action::Verdict, breaker::ProbeReply, rows::nouns},
};

pub async fn declare(db: &mut SqliteConnection, now: i64, name: &str, policy: &Breaker, by: &str) -> sqlx::Result<()> {
    let declare = sqlx::query(sql::BREAKER_DECLARE).bind(name).bind(policy.threshold);
    let declare = declare.bind(policy.cooldown_us()).bind(policy.cooldown_max_us());
    declare
        .bind(policy.probes)
        .bind(now)
        .bind(by)
        .execute(db)
        .await
        .map(drop)
}

pub async fn note(db: &mut SqliteConnection, now: i64, name: &str, note: &Note) -> sqlx::Result<Option<BreakerView>> {
    let Some(before) = one(db, now, name).await? else {
        return Ok(None);
    };
    match before.noted(note, rows::time(now)?) {
        Some(after) => Ok(moved(db, &before, &after).await?.then_some(after)),
        None => Ok(None),
    }
}

pub async fn force(
    db: &mut SqliteConnection,
    now: i64,
    name: &str,
    force: Force,
    actor: &str,
) -> sqlx::Result<Verdict> {
    let Some(before) = one(db, now, name).await? else {
        return Ok(Verdict::Missing);
    };
    let Some(after) = before.forced(force, actor, rows::time(now)?) else {
        return Ok(Verdict::Unchanged);
    };
    let forced = moved(db, &before, &after).await?;
    let detail = format!("{name} {}", force.as_str());
    audit(db, now, (actor, "breaker"), 0, Some(&detail)).await?;
    Ok(Verdict::changed(forced))
}

pub async fn probe(
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
    let found = list(db, now, Some(&[name.to_owned()])).await?;
    Ok(found.into_iter().next())
}

pub async fn list(db: &mut SqliteConnection, now: i64, names: Option<&[String]>) -> sqlx::Result<Vec<BreakerView>> {
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
