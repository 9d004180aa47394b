//! Expire the leases of dead workers, retire the exhausted, forget the dead.
//!
//! Any worker runs this on a jittered timer, whatever its load. It keeps no state that matters: a round that fails or
//! dies half-way is finished by the next one, here or elsewhere.

use std::time::{Duration, Instant};

use crate::{
    error::Result,
    store::{Expired, Store},
};

/// Leases ended in one commit.
const BATCH: i32 = 1000;
/// Rounds are this far apart; a dead worker is noticed within it.
const EVERY: Duration = Duration::from_millis(500);
/// Leases are looked for at least this often, even when this worker marked nobody dead: whoever did may have died.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// One process's part in the recovery.
pub(crate) struct Recovery {
    looked_at: Option<Instant>,
    /// Dead workers still hold something that another transaction has locked.
    pending: bool,
}

impl Recovery {
    pub(crate) fn new() -> Recovery {
        Recovery {
            looked_at: None,
            pending: false,
        }
    }

    /// The wait before the next round.
    pub(crate) fn pause(&self) -> Duration {
        EVERY.mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// Three separate transactions; see the protocol for why they must be.
    pub(crate) async fn round(&mut self, store: &dyn Store) -> Result<Vec<Expired>> {
        let marked = store.mark_dead().await?;
        let due = self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if marked.is_empty() && !self.pending && !due {
            return Ok(Vec::new());
        }
        // Stays set if anything below fails.
        self.pending = true;
        let mut expired = Vec::new();
        loop {
            let batch = store.expire(BATCH).await?;
            let full = batch.len() >= BATCH as usize;
            expired.extend(batch);
            if !full {
                break;
            }
        }
        self.pending = store.forget_dead().await? > 0;
        self.looked_at = Some(Instant::now());
        Ok(expired)
    }
}
