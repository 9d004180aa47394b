//! Breakers on PostgreSQL: a row that is locked to be moved, and that every claim of a bound kind locks in share mode.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{Connection, PgConnection, SqlStr};

use crate::store::postgres::{Inner, claim, run::Fault};
use crate::{
    breaker::{Breaker, BreakerChange, BreakerState, BreakerView, Force, Note, Trying},
    error::Result,
    store::{
        ClaimAsk, ClaimReply,
        action::Verdict,
        breaker::ProbeReply,
        rows::{Columns, Noun},
    },
};

pub async fn declare(inner: &Inner, name: &str, policy: &Breaker, by: &str) -> Result<Option<BreakerView>> {
    let declare = inner
        .query(&inner.sql.breaker_declare)
        .persistent(false)
        .bind(name)
        .bind(policy.threshold)
        .bind(policy.cooldown_us())
        .bind(policy.cooldown_max_us())
        .bind(policy.probes)
        .bind(inner.now())
        .bind(by);
    let declared = inner.run("declare breakers", async |pg| {
        Ok(declare.execute(pg).await.map(drop)?)
    });
    declared.await.map(|()| None)
}

pub async fn list(inner: &Inner, names: Option<&[String]>) -> Result<Vec<BreakerView>> {
    let read = inner.query(&inner.sql.breakers).bind(names).bind(inner.now());
    inner.list("read breakers", read).await
}

pub async fn log(inner: &Inner, name: &str, max: i64) -> Result<Vec<BreakerChange>> {
    let read = inner
        .query(&inner.sql.breaker_log)
        .persistent(false)
        .bind(name)
        .bind(max);
    inner.list("read breaker log", read).await
}

pub async fn note(inner: &Inner, name: &str, note: &Note) -> Result<Option<BreakerView>> {
    inner
        .run("update breaker", async |pg| {
            let mut tx = pg.begin().await?;
            let mut changed = None;
            if let Some((before, now)) = locked(inner, &mut tx, &inner.sql.breaker_lock, name).await?
                && let Some(after) = before.noted(note, now)
            {
                changed = moved(inner, &mut tx, &before, &after).await?.then_some(after);
            }
            tx.commit().await?;
            Ok(changed)
        })
        .await
}

pub async fn force(inner: &Inner, name: &str, force: Force, actor: &str) -> Result<Verdict> {
    inner
        .run("force breaker", async |pg| {
            let mut tx = pg.begin().await?;
            let mut forced = Verdict::Missing;
            if let Some((before, now)) = locked(inner, &mut tx, &inner.sql.breaker_lock, name).await? {
                forced = Verdict::Unchanged;
                if let Some(after) = before.forced(force, actor, now) {
                    forced = Verdict::changed(moved(inner, &mut tx, &before, &after).await?);
                    inner
                        .query(&inner.sql.breaker_audit)
                        .persistent(false)
                        .bind(actor)
                        .bind(format!("{name} {}", force.as_str()))
                        .execute(&mut *tx)
                        .await?;
                }
            }
            tx.commit().await?;
            Ok(forced)
        })
        .await
}

pub async fn claim_probe(inner: &Inner, names: &[String], ask: &ClaimAsk, by: &str) -> Result<ProbeReply> {
    inner
        .run_lent(inner.limit(), "claim a probe", async |lent| {
            if !inner.hosts.is_home(ask.worker, lent.timeline()) {
                return Ok(ProbeReply::Claimed {
                    tried: Vec::new(),
                    reply: ClaimReply::Moved,
                });
            }
            let mut tx = lent.pg().begin().await?;
            let reply = probe(inner, &mut tx, names, ask, by).await?;
            tx.commit().await?;
            Ok(reply)
        })
        .await
}

/// The locked breaker rows keep other callers from adding probes; the number of probes can only fall.
async fn probe(
    inner: &Inner,
    tx: &mut PgConnection,
    names: &[String],
    ask: &ClaimAsk,
    by: &str,
) -> Result<ProbeReply, Fault> {
    let mut trying = Trying::new(ask.alone);
    for name in names {
        let Some((mut breaker, now)) = locked(inner, tx, &inner.sql.breaker_try, name).await? else {
            return Ok(ProbeReply::NotNow);
        };
        if let Some(half_open) = breaker.probed(by, now) {
            moved(inner, tx, &breaker, &half_open).await?;
            breaker = half_open;
        }
        match breaker.state {
            BreakerState::Closed => {}
            BreakerState::Open => return Ok(ProbeReply::NotNow),
            BreakerState::HalfOpen => {
                sweep(inner, tx, name).await?;
                let count = inner.query_scalar(&inner.sql.probe_count).bind(name);
                trying.add(&breaker, count.fetch_one(&mut *tx).await?);
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
        match claim::claim_on(inner, tx, &part.up_to(left)).await? {
            ClaimReply::Jobs(more) => jobs.extend(more),
            reply => {
                let tried = trying.tried;
                return Ok(ProbeReply::Claimed { tried, reply });
            }
        }
    }
    for (name, _) in &trying.tried {
        // A job that was a probe until a moment ago may become one again.
        sweep(inner, tx, name).await?;
        inner
            .query(&inner.sql.probe_put)
            .bind(name)
            .bind(jobs.iter().map(|job| job.token.id).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.token.epoch).collect::<Vec<_>>())
            .bind(ask.worker.0)
            .execute(&mut *tx)
            .await?;
    }
    Ok(ProbeReply::Claimed {
        tried: trying.tried,
        reply: ClaimReply::Jobs(jobs),
    })
}

async fn sweep(inner: &Inner, tx: &mut PgConnection, name: &str) -> sqlx::Result<()> {
    let sweep = inner.query(&inner.sql.probe_sweep).bind(name);
    sweep.execute(tx).await.map(drop)
}

/// The breaker under its lock, and the database's time.
pub async fn locked(
    inner: &Inner,
    tx: &mut PgConnection,
    lock: &SqlStr,
    name: &str,
) -> sqlx::Result<Option<(BreakerView, Timestamp)>> {
    let found = inner
        .query(lock)
        .bind(name)
        .bind(inner.now())
        .fetch_optional(tx)
        .await?;
    found.map(|row| Ok((Noun::of(&row)?, row.read("now")?))).transpose()
}

/// `false` when another caller moved the breaker meanwhile, which the lock prevents.
pub async fn moved(
    inner: &Inner,
    tx: &mut PgConnection,
    before: &BreakerView,
    after: &BreakerView,
) -> sqlx::Result<bool> {
    let set = inner
        .query(&inner.sql.breaker_set)
        .bind(&after.name)
        .bind(before.version)
        .bind(after.state.as_str())
        .bind(after.forced)
        .bind(after.failures)
        .bind(after.trips)
        .bind(after.open_until.map(ToSqlx::to_sqlx))
        .bind(after.version)
        .bind(after.changed_at.to_sqlx())
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(&mut *tx)
        .await?;
    if set.rows_affected() == 0 || after.version == before.version {
        return Ok(set.rows_affected() > 0);
    }
    inner
        .query(&inner.sql.breaker_logged)
        .bind(&after.name)
        .bind(after.version)
        .bind(before.state.as_str())
        .bind(after.state.as_str())
        .bind(after.forced)
        .bind(after.changed_at.to_sqlx())
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(tx)
        .await?;
    Ok(true)
}
