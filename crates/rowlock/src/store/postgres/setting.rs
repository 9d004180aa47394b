//! What people set at run time.

use sqlx::{Row, postgres::PgRow};

use super::PgStore;
use crate::{
    error::{Doing, Result},
    observe::RolloutView,
    pause::{PauseView, Target},
    store::{
        Fut,
        setting::{Settings, percent},
    },
};

impl Settings for PgStore {
    fn rollouts(&self) -> Fut<'_, Vec<RolloutView>> {
        self.bounded("read rollouts", async {
            let mut lent = self.0.engine.acquire().await.doing("read rollouts")?;
            let found = sqlx::query(self.0.sql.rollouts.clone())
                .fetch_all(lent.pg())
                .await
                .doing("read rollouts")?;
            lent.end("read rollouts").await?;
            found.iter().map(rollout).collect::<Result<_>>()
        })
    }

    fn set_rollout<'a>(&'a self, name: &'a str, percent: u8, actor: &'a str) -> Fut<'a, ()> {
        self.bounded("set rollout", async move {
            let mut lent = self.0.engine.acquire().await.doing("set rollout")?;
            sqlx::query(self.0.sql.set_rollout.clone())
                .bind(name)
                .bind(percent.to_string())
                .bind(actor)
                .bind(self.0.now())
                .execute(lent.pg())
                .await
                .doing("set rollout")?;
            lent.end("set rollout").await?;
            Ok(())
        })
    }

    fn pauses(&self) -> Fut<'_, Vec<PauseView>> {
        self.bounded("read pauses", async {
            let mut lent = self.0.engine.acquire().await.doing("read pauses")?;
            let found = sqlx::query(self.0.sql.pauses.clone())
                .fetch_all(lent.pg())
                .await
                .doing("read pauses")?;
            lent.end("read pauses").await?;
            let found = found.iter().filter_map(|row| pause(row).transpose());
            found.collect::<sqlx::Result<_>>().doing("read pauses")
        })
    }

    fn set_pause<'a>(&'a self, target: &'a Target, paused: bool, actor: &'a str) -> Fut<'a, bool> {
        let (doing, text) = match paused {
            true => ("pause", &self.0.sql.pause),
            false => ("resume", &self.0.sql.resume),
        };
        self.bounded(doing, async move {
            let mut lent = self.0.engine.acquire().await.doing(doing)?;
            let set = sqlx::query_scalar(text.clone()).bind(target.key()).bind(actor);
            let changed = set.fetch_one(lent.pg()).await.doing(doing)?;
            lent.end(doing).await?;
            Ok(changed)
        })
    }
}

/// Nothing of what a newer version has paused.
fn pause(row: &PgRow) -> sqlx::Result<Option<PauseView>> {
    let Some(target) = Target::parse(row.try_get("name")?) else {
        return Ok(None);
    };
    Ok(Some(PauseView {
        target,
        since: row.try_get::<jiff_sqlx::Timestamp, _>("changed_at")?.to_jiff(),
        by: row.try_get("changed_by")?,
    }))
}

fn rollout(row: &PgRow) -> Result<RolloutView> {
    let read = || {
        let name: String = row.try_get("name")?;
        Ok(RolloutView {
            percent: percent(&name, row.try_get("value")?),
            changed_at: row.try_get::<jiff_sqlx::Timestamp, _>("changed_at")?.to_jiff(),
            changed_by: row.try_get("changed_by")?,
            name,
        })
    };
    read().doing("read rollouts")
}
