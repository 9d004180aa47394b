//! What people have set at run time.

use super::Inner;
use crate::{
    error::Result,
    store::setting::{SettingSort, SettingView},
};

pub async fn list(inner: &Inner, of: SettingSort) -> Result<Vec<SettingView>> {
    let (doing, text) = match of {
        SettingSort::Rollouts => ("read rollouts", &inner.sql.rollouts),
        SettingSort::Pauses => ("read pauses", &inner.sql.pauses),
    };
    inner.list(doing, inner.query(text)).await
}
