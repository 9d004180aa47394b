//! People who decide about errands while they wait, run and are over.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use rowlock::{Admin, Error};

use crate::{base::Base, chaos::ground::Ground, rows};

/// The kind that this series deals.
pub const DEED: &str = "a person's deed";

/// How far back they look.
const NEWEST: i64 = 60;
/// What a person does at one sitting.
const AT_ONCE: usize = 6;

/// One sitting after the other until it is enough.
///
/// # Errors
/// The database's name does not read.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let operate = Admin::open(&ground.url, "rowlock")?.operate();
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        // The database may be away itself.
        let Ok(errands) = errands(&ground.url).await else {
            continue;
        };
        for _ in 0..AT_ONCE.min(errands.len()) {
            let id = errands[random.usize(..errands.len())];
            let soon = Timestamp::now() + Duration::from_millis(random.u64(50..400));
            let decided = match random.u32(..7) {
                0 => operate.delay(id, soon, "person").await,
                1 => operate.run_now(id, "person").await,
                2 => operate.cancel(id, Some("not needed"), "person").await,
                3 => operate.retire(id, Some("by hand"), "person").await,
                4 | 5 => operate.reopen(id, "person").await,
                _ => operate.rerun(id, None, "person").await,
            };
            match decided {
                Ok(()) => ground.count(DEED, 1),
                // The job is elsewhere, which is an answer.
                Err(Error::Conflict(_) | Error::NotFound(_)) => {}
                // It may have happened or not; the audit knows.
                Err(_) => break,
            }
        }
    }
    Ok(())
}

async fn errands(url: &str) -> Result<Vec<i64>> {
    let mut base = Base::connect(url).await?;
    let newest = format!("select id from rowlock.job where kind = 'errand' order by id desc limit {NEWEST}");
    let found = rows!(&mut base, &newest, (i64,))?;
    base.close().await?;
    Ok(found.into_iter().map(|(id,)| id).collect())
}
