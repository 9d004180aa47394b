//! What people set at run time.

use super::Inner;
use crate::{
    error::Result,
    observe::RolloutView,
    pause::{PauseView, Target},
    store::setting,
};

pub async fn rollouts(inner: &Inner) -> Result<Vec<RolloutView>> {
    let read = inner.query(&inner.sql.rollouts);
    inner.list("read rollouts", read).await
}

pub async fn set_rollout(inner: &Inner, name: &str, percent: u8, actor: &str) -> Result<()> {
    let set = inner.query(&inner.sql.set_rollout).bind(name).bind(percent.to_string());
    let set = set.bind(actor).bind(inner.now());
    inner
        .run("set rollout", async |pg| Ok(set.execute(pg).await.map(drop)?))
        .await
}

pub async fn pauses(inner: &Inner) -> Result<Vec<PauseView>> {
    let read = inner.query(&inner.sql.pauses);
    inner
        .run("read pauses", async |pg| {
            Ok(setting::pauses(&read.fetch_all(pg).await?)?)
        })
        .await
}

pub async fn set_pause(inner: &Inner, target: &Target, paused: bool, actor: &str) -> Result<bool> {
    let (doing, text) = match paused {
        true => ("pause", &inner.sql.pause),
        false => ("resume", &inner.sql.resume),
    };
    let set = inner.query_scalar(text).bind(target.key()).bind(actor);
    inner.run(doing, async |pg| Ok(set.fetch_one(pg).await?)).await
}
