//! What operators set at run time.

use jiff::Timestamp;

use super::{
    Inspect,
    rows::{Columns, Noun},
};
use crate::{
    error::Result,
    observe::RolloutView,
    pause::{PauseView, Target},
};

/// What sort of setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSort {
    Rollouts,
    Pauses,
}

/// One setting as it is stored.
#[derive(Clone, Debug)]
pub struct SettingView {
    pub name: String,
    pub value: String,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// The percentage of a stored value. A value that cannot be read is 0, which means the old code path.
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

impl Noun for SettingView {
    fn of(row: &impl Columns) -> sqlx::Result<SettingView> {
        Ok(SettingView {
            name: row.read("name")?,
            value: row.read("value")?,
            changed_at: row.read("changed_at")?,
            changed_by: row.read("changed_by")?,
        })
    }
}

/// Every rollout that was ever set, by name.
pub async fn rollouts(store: &(impl Inspect + ?Sized)) -> Result<Vec<RolloutView>> {
    let found = store.settings(SettingSort::Rollouts).await?;
    let view = |set: SettingView| RolloutView {
        percent: percent(&set.name, &set.value),
        changed_at: set.changed_at,
        changed_by: set.changed_by,
        name: set.name,
    };
    Ok(found.into_iter().map(view).collect())
}

/// Every pause except those of a newer version that cannot be read here.
pub async fn pauses(store: &(impl Inspect + ?Sized)) -> Result<Vec<PauseView>> {
    let found = store.settings(SettingSort::Pauses).await?;
    let view = |set: SettingView| {
        Some(PauseView {
            target: Target::parse(&set.name)?,
            since: set.changed_at,
            by: set.changed_by,
        })
    };
    Ok(found.into_iter().filter_map(view).collect())
}
