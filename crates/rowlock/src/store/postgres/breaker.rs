//! Breakers on PostgreSQL: a row that is locked to be moved, and that every claim of what is bound to it shares.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{Connection, PgConnection, Row, SqlStr, postgres::PgRow};

use super::{Inner, PgStore, flow, rows};
use crate::{
    breaker::{Breaker, BreakerChange, BreakerState, BreakerView, Force, Note, Trying},
    error::{Doing, Result},
    store::{
        ClaimAsk, ClaimReply, Fut,
        breaker::{Breakers, ProbeReply},
    },
};

const PROBING: &str = "claim a probe";

impl Breakers for PgStore {
    fn declare_breakers<'a>(&'a self, breakers: &'a [(String, Breaker)], by: &'a str) -> Fut<'a, ()> {
        const DOING: &str = "declare breakers";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            for (name, breaker) in breakers {
                sqlx::query(self.0.sql.breaker_declare.clone())
                    .persistent(false)
                    .bind(name)
                    .bind(breaker.threshold)
                    .bind(breaker.cooldown_us())
                    .bind(breaker.cooldown_max_us())
                    .bind(breaker.probes)
                    .bind(self.0.now())
                    .bind(by)
                    .execute(lent.pg())
                    .await
                    .doing(DOING)?;
            }
            lent.end(DOING).await
        })
    }

    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>> {
        const DOING: &str = "read breakers";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let found = sqlx::query(self.0.sql.breakers.clone())
                .persistent(self.0.named())
                .bind(names)
                .bind(self.0.now())
                .fetch_all(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            found.iter().map(view).collect::<sqlx::Result<_>>().doing(DOING)
        })
    }

    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>> {
        const DOING: &str = "read breaker log";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let found = sqlx::query(self.0.sql.breaker_log.clone())
                .persistent(false)
                .bind(name)
                .bind(max)
                .fetch_all(lent.pg())
                .await
                .doing(DOING)?;
            lent.end(DOING).await?;
            found.iter().map(change).collect::<sqlx::Result<_>>().doing(DOING)
        })
    }

    fn note_breaker<'a>(&'a self, note: &'a Note) -> Fut<'a, Option<BreakerView>> {
        const DOING: &str = "update breaker";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let mut tx = lent.pg().begin().await.doing(DOING)?;
            let after = match locked(&self.0, &mut tx, &self.0.sql.breaker_lock, &note.name, DOING).await? {
                Some((before, now)) => match before.noted(note, now) {
                    Some(after) => moved(&self.0, &mut tx, &before, &after, DOING).await?.then_some(after),
                    None => None,
                },
                None => None,
            };
            tx.commit().await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(after)
        })
    }

    fn force_breaker<'a>(&'a self, name: &'a str, force: Force, actor: &'a str) -> Fut<'a, Option<bool>> {
        const DOING: &str = "force breaker";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let mut tx = lent.pg().begin().await.doing(DOING)?;
            let mut forced = None;
            if let Some((before, now)) = locked(&self.0, &mut tx, &self.0.sql.breaker_lock, name, DOING).await? {
                forced = Some(false);
                if let Some(after) = before.forced(force, actor, now) {
                    forced = Some(moved(&self.0, &mut tx, &before, &after, DOING).await?);
                    sqlx::query(self.0.sql.breaker_audit.clone())
                        .persistent(false)
                        .bind(actor)
                        .bind(format!("{name} {}", force.as_str()))
                        .execute(&mut *tx)
                        .await
                        .doing(DOING)?;
                }
            }
            tx.commit().await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(forced)
        })
    }

    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply> {
        self.bounded(PROBING, async move {
            let mut lent = self.0.engine.acquire().await.doing(PROBING)?;
            let home = self.0.hosts.is_home(ask.worker, lent.timeline());
            let mut tx = lent.pg().begin().await.doing(PROBING)?;
            let reply = match home {
                true => probe(&self.0, &mut tx, names, ask, by).await?,
                false => ProbeReply::Claimed {
                    tried: Vec::new(),
                    reply: ClaimReply::Moved,
                },
            };
            tx.commit().await.doing(PROBING)?;
            lent.end(PROBING).await?;
            Ok(reply)
        })
    }
}

/// The rows under their locks keep the number of probes from changing but by their ends.
async fn probe(inner: &Inner, tx: &mut PgConnection, names: &[String], ask: &ClaimAsk, by: &str) -> Result<ProbeReply> {
    let mut trying = Trying::new(ask.alone);
    for name in names {
        let Some((mut breaker, now)) = locked(inner, tx, &inner.sql.breaker_try, name, PROBING).await? else {
            return Ok(ProbeReply::NotNow);
        };
        if let Some(half_open) = breaker.probed(by, now) {
            moved(inner, tx, &breaker, &half_open, PROBING).await?;
            breaker = half_open;
        }
        match breaker.state {
            BreakerState::Closed => {}
            BreakerState::Open => return Ok(ProbeReply::NotNow),
            BreakerState::HalfOpen => {
                sweep(inner, tx, name).await?;
                let probing: i32 = sqlx::query_scalar(inner.sql.probe_count.clone())
                    .persistent(inner.named())
                    .bind(name)
                    .fetch_one(&mut *tx)
                    .await
                    .doing(PROBING)?;
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
        match flow::claim_on(inner, tx, &part.up_to(left)).await? {
            ClaimReply::Jobs(more) => jobs.extend(more),
            reply => {
                let tried = trying.tried;
                return Ok(ProbeReply::Claimed { tried, reply });
            }
        }
    }
    for (name, _) in &trying.tried {
        // A job that was a probe until a moment ago may be one again.
        sweep(inner, tx, name).await?;
        sqlx::query(inner.sql.probe_put.clone())
            .persistent(inner.named())
            .bind(name)
            .bind(jobs.iter().map(|job| job.token.id).collect::<Vec<_>>())
            .bind(jobs.iter().map(|job| job.token.epoch).collect::<Vec<_>>())
            .bind(ask.worker.0)
            .execute(&mut *tx)
            .await
            .doing(PROBING)?;
    }
    Ok(ProbeReply::Claimed {
        tried: trying.tried,
        reply: ClaimReply::Jobs(jobs),
    })
}

async fn sweep(inner: &Inner, tx: &mut PgConnection, name: &str) -> Result<()> {
    let sweep = sqlx::query(inner.sql.probe_sweep.clone())
        .persistent(inner.named())
        .bind(name);
    sweep.execute(tx).await.doing(PROBING)?;
    Ok(())
}

pub(super) async fn locked(
    inner: &Inner,
    tx: &mut PgConnection,
    lock: &SqlStr,
    name: &str,
    doing: &'static str,
) -> Result<Option<(BreakerView, Timestamp)>> {
    let found = sqlx::query(lock.clone())
        .persistent(inner.named())
        .bind(name)
        .bind(inner.now())
        .fetch_optional(tx)
        .await
        .doing(doing)?;
    let read = found.map(|row| Ok((view(&row)?, rows::at(&row, "now")?)));
    read.transpose().doing(doing)
}

/// `false` when somebody else moved it meanwhile, which the lock does not allow.
pub(super) async fn moved(
    inner: &Inner,
    tx: &mut PgConnection,
    before: &BreakerView,
    after: &BreakerView,
    doing: &'static str,
) -> Result<bool> {
    let set = sqlx::query(inner.sql.breaker_set.clone())
        .persistent(inner.named())
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
        .await
        .doing(doing)?;
    if set.rows_affected() == 0 || after.version == before.version {
        return Ok(set.rows_affected() > 0);
    }
    sqlx::query(inner.sql.breaker_logged.clone())
        .persistent(inner.named())
        .bind(&after.name)
        .bind(after.version)
        .bind(before.state.as_str())
        .bind(after.state.as_str())
        .bind(after.forced)
        .bind(after.changed_at.to_sqlx())
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(tx)
        .await
        .doing(doing)?;
    Ok(true)
}

fn state(row: &PgRow, column: &str) -> sqlx::Result<BreakerState> {
    let word: &str = row.try_get(column)?;
    rows::word(word, BreakerState::parse(word))
}

fn view(row: &PgRow) -> sqlx::Result<BreakerView> {
    Ok(BreakerView {
        name: row.try_get("name")?,
        state: state(row, "state")?,
        forced: row.try_get("forced")?,
        failures: row.try_get("failures")?,
        trips: row.try_get("trips")?,
        open_until: rows::maybe_at(row, "open_until")?,
        probing: row.try_get("probing")?,
        policy: Breaker::stored(
            row.try_get("threshold")?,
            row.try_get("cooldown_us")?,
            row.try_get("cooldown_max_us")?,
            row.try_get("probes")?,
        ),
        version: row.try_get("version")?,
        changed_at: rows::at(row, "changed_at")?,
        changed_by: row.try_get("changed_by")?,
        reason: row.try_get("reason")?,
        due: row.try_get("due")?,
    })
}

fn change(row: &PgRow) -> sqlx::Result<BreakerChange> {
    Ok(BreakerChange {
        version: row.try_get("version")?,
        from: state(row, "from_state")?,
        to: state(row, "to_state")?,
        forced: row.try_get("forced")?,
        at: rows::at(row, "changed_at")?,
        by: row.try_get("changed_by")?,
        reason: row.try_get("reason")?,
    })
}
