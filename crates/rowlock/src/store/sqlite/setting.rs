//! What people set at run time.

use sqlx::SqliteConnection;

use super::{SqliteStore, sql};
use crate::{
    observe::RolloutView,
    pause::{PauseView, Target},
    store::{
        Fut,
        rows::nouns,
        setting::{self, Settings},
    },
};

impl Settings for SqliteStore {
    fn rollouts(&self) -> Fut<'_, Vec<RolloutView>> {
        Box::pin(self.read("read rollouts", async |db, _| {
            nouns(&sqlx::query(sql::ROLLOUTS).fetch_all(db).await?)
        }))
    }

    fn set_rollout<'a>(&'a self, name: &'a str, percent: u8, actor: &'a str) -> Fut<'a, ()> {
        let input = (name.to_owned(), percent.to_string(), actor.to_owned());
        Box::pin(self.write("set rollout", input, |db, now, (name, percent, actor)| {
            Box::pin(async move {
                let set = sqlx::query(sql::SET_ROLLOUT).bind(name).bind(percent);
                set.bind(actor).bind(now).execute(&mut *db).await?;
                audit(db, now, (actor, "rollout"), 0, Some(&format!("{name} {percent}"))).await
            })
        }))
    }

    fn pauses(&self) -> Fut<'_, Vec<PauseView>> {
        Box::pin(self.read("read pauses", async |db, _| {
            setting::pauses(&sqlx::query(sql::PAUSES).fetch_all(db).await?)
        }))
    }

    fn set_pause<'a>(&'a self, target: &'a Target, paused: bool, actor: &'a str) -> Fut<'a, bool> {
        let doing = if paused { "pause" } else { "resume" };
        let input = (target.key(), target.group_no(), actor.to_owned(), paused);
        Box::pin(self.write(doing, input, |db, now, (key, group_no, actor, paused)| {
            Box::pin(async move {
                let before: bool = sqlx::query_scalar(sql::PAUSED).bind(key).fetch_one(&mut *db).await?;
                let set = sqlx::query(if *paused { sql::PAUSE } else { sql::RESUME });
                let set = set.bind(key).bind(group_no).bind(actor).bind(now);
                set.execute(db).await.map(|_| before != *paused)
            })
        }))
    }
}

/// Notes what somebody did, to which job if it was one.
pub async fn audit(
    db: &mut SqliteConnection,
    now: i64,
    (actor, verb): (&str, &str),
    id: i64,
    detail: Option<&str>,
) -> sqlx::Result<()> {
    let note = sqlx::query(sql::AUDIT).bind(now).bind(actor).bind(verb);
    note.bind(id).bind(detail).execute(db).await.map(drop)
}
