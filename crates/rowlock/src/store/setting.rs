//! What people set at run time.

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::{
    observe::RolloutView,
    pause::{PauseView, Target},
};

/// One room's settings.
pub trait Settings: Send + Sync {
    /// Every rollout that was ever set, by name.
    fn rollouts(&self) -> Fut<'_, Vec<RolloutView>>;
    /// Sets one, and notes who did it.
    fn set_rollout<'a>(&'a self, name: &'a str, percent: u8, actor: &'a str) -> Fut<'a, ()>;
    /// Every pause.
    fn pauses(&self) -> Fut<'_, Vec<PauseView>>;
    /// Pauses it, or lets it go on, and notes who did it; `false` when it was so before.
    fn set_pause<'a>(&'a self, target: &'a Target, paused: bool, actor: &'a str) -> Fut<'a, bool>;
}

/// The percentage that a stored value means; what cannot be read is 0, which is the path that was there before.
pub fn percent(name: &str, value: &str) -> u8 {
    match value.parse() {
        Ok(percent @ 0..=100) => percent,
        _ => {
            tracing::error!(
                name,
                value,
                "a rollout is not set to a percentage and counts as 0; set it with `rowlock rollout`"
            );
            0
        }
    }
}

impl Noun for RolloutView {
    fn of(row: &impl Columns) -> sqlx::Result<RolloutView> {
        let (name, value): (String, String) = (row.read("name")?, row.read("value")?);
        Ok(RolloutView {
            percent: percent(&name, &value),
            changed_at: row.read("changed_at")?,
            changed_by: row.read("changed_by")?,
            name,
        })
    }
}

/// Every pause but those of a newer version that cannot be read here.
pub fn pauses(rows: &[impl Columns]) -> sqlx::Result<Vec<PauseView>> {
    let mut pauses = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(target) = Target::parse(&row.read::<String>("name")?) {
            pauses.push(PauseView {
                target,
                since: row.read("changed_at")?,
                by: row.read("changed_by")?,
            });
        }
    }
    Ok(pauses)
}
