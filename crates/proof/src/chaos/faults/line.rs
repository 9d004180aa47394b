//! What jobs depend on goes down now and then, for the whole fleet.

use std::time::Duration;

use anyhow::Result;

use crate::{base::Base, chaos::ground::Ground};

/// The kind that this series deals.
pub const DOWN: &str = "dependency down";

/// One outage after the other until it is enough.
///
/// # Errors
/// None for now.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        // The database may be away itself.
        if set(&ground.url, false).await.is_ok() {
            ground.count(DOWN, 1);
            ground.pause(Duration::from_millis(random.u64(500..3_000))).await;
            while set(&ground.url, true).await.is_err() && ground.pause(Duration::from_millis(100)).await {}
        }
    }
    Ok(())
}

/// Whether it can be reached from now on.
///
/// # Errors
/// The database's.
pub async fn set(url: &str, up: bool) -> Result<()> {
    let mut base = Base::connect(url).await?;
    base.run(&format!("update line set up = {}", i32::from(up))).await?;
    base.close().await
}
