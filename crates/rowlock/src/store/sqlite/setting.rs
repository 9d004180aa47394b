//! What people set at run time.

use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use super::{SqliteStore, rows, sql};
use crate::{
    observe::RolloutView,
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
