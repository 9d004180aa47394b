//! What people set at run time.

use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::{SqliteStore, rows, sql};
use crate::{
    observe::RolloutView,
    pause::{PauseView, Target},
    store::{
        Fut,
        setting::{Settings, percent},
    },
};

impl Settings for SqliteStore {
    fn rollouts(&self) -> Fut<'_, Vec<RolloutView>> {
        Box::pin(self.read("read rollouts", (), |db, _, ()| Box::pin(rollouts(db))))
    }

    fn set_rollout<'a>(&'a self, name: &'a str, percent: u8, actor: &'a str) -> Fut<'a, ()> {
        let input = (name.to_owned(), percent.to_string(), actor.to_owned());
        Box::pin(self.write("set rollout", input, |db, now, (name, percent, actor)| {
            Box::pin(async move {
                for text in [sql::SET_ROLLOUT, sql::ROLLOUT_AUDIT] {
                    sqlx::query(text)
                        .bind(name)
                        .bind(percent)
                        .bind(actor)
                        .bind(now)
                        .execute(&mut *db)
                        .await?;
                }
                Ok(())
            })
        }))
    }

    fn pauses(&self) -> Fut<'_, Vec<PauseView>> {
        Box::pin(self.read("read pauses", (), |db, _, ()| Box::pin(pauses(db))))
    }

    fn set_pause<'a>(&'a self, target: &'a Target, paused: bool, actor: &'a str) -> Fut<'a, bool> {
        let (doing, text) = match paused {
            true => ("pause", sql::PAUSE),
            false => ("resume", sql::RESUME),
        };
        let input = (target.key(), actor.to_owned(), doing, text);
        Box::pin(self.write(doing, input, |db, now, (key, actor, doing, text)| {
            Box::pin(async move {
                let mut set = sqlx::query(*text).bind(key);
                if *doing == "pause" {
                    set = set.bind(actor).bind(now);
                }
                let changed = set.execute(&mut *db).await?.rows_affected() > 0;
                if changed {
                    let note = sqlx::query(sql::SETTING_AUDIT).bind(key).bind(actor);
                    note.bind(*doing).bind(now).execute(db).await?;
                }
                Ok(changed)
            })
        }))
    }
}

async fn pauses(db: &mut SqliteConnection) -> sqlx::Result<Vec<PauseView>> {
    let mut pauses = Vec::new();
    for row in sqlx::query(sql::PAUSES).fetch_all(db).await? {
        if let Some(target) = Target::parse(row.try_get("name")?) {
            pauses.push(PauseView {
                target,
                since: rows::time(row.try_get("changed_at")?)?,
                by: row.try_get("changed_by")?,
            });
        }
    }
    Ok(pauses)
}

async fn rollouts(db: &mut SqliteConnection) -> sqlx::Result<Vec<RolloutView>> {
    let found = sqlx::query(sql::ROLLOUTS).fetch_all(db).await?;
    found.iter().map(rollout).collect()
}

fn rollout(row: &SqliteRow) -> sqlx::Result<RolloutView> {
    let name: String = row.try_get("name")?;
    Ok(RolloutView {
        percent: percent(&name, row.try_get("value")?),
        changed_at: rows::time(row.try_get("changed_at")?)?,
        changed_by: row.try_get("changed_by")?,
        name,
    })
}
