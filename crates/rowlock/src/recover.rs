//! Expire the leases of dead workers, retire exhausted jobs, and forget dead workers.
//!
//! Every worker runs this on a jittered timer, whatever its load. It keeps no state that matters: the next round, in
//! any process, finishes a round that fails or dies half-way.

use std::time::{Duration, Instant};

use crate::{
    error::{Result, chain},
    store::{Expired, Store},
};

/// Leases ended in one commit.
const BATCH: i32 = 1000;
/// The longest time between rounds; a dead worker is noticed within it.
const EVERY_MAX: Duration = Duration::from_millis(700);
/// While this worker may not declare others dead, it still ends the leases of workers that others declared dead, this
/// often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// An aimed look is this late, so that it is never too early. Only clock differences spread the workers that aim at the
/// same moment.
const MARGIN: Duration = Duration::from_millis(5);

/// One process's part in the recovery.
pub(crate) struct Recovery {
    every: Duration,
    looked_at: Option<Instant>,
    /// When a suspicion may be confirmed, counted from the last round.
    look_in: Option<Duration>,
    /// Dead workers still hold something that another transaction has locked.
    pending: bool,
    /// Until then this process declares no worker dead. The database was unreachable a moment ago, for other workers
    /// too, and they need time to send their heartbeats.
    blind_until: Option<Instant>,
    blind_for: Duration,
}

impl Recovery {
    pub(crate) fn new(lease: Duration) -> Recovery {
        Recovery {
            every: (lease / 4).min(EVERY_MAX),
            looked_at: None,
            look_in: None,
            pending: false,
            blind_until: None,
            blind_for: lease / 3 + Duration::from_secs(1),
        }
    }

    /// The wait before the next round. A suspected worker is checked as soon as a check can decide. A check at a random
    /// time would keep the jobs of a dead worker waiting for longer than their lease and a second.
    pub(crate) fn pause(&self) -> Duration {
        let by_chance = self.every.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.look_in.map_or(by_chance, |aimed| by_chance.min(aimed + MARGIN))
    }

    /// One round; `may_judge` says that this worker's own heartbeat is in good order.
    pub(crate) async fn round(&mut self, store: &dyn Store, may_judge: bool) -> Result<Vec<Expired>> {
        let sees = self.blind_until.is_none_or(|until| Instant::now() >= until);
        let mut expired = Vec::new();
        let ended = self.try_round(store, may_judge && sees, &mut expired).await;
        if ended.is_err() {
            self.blind_until = Some(Instant::now() + self.blind_for);
        }
        match ended {
            // Expired leases are reported, even if something failed after them.
            Err(error) if !expired.is_empty() => tracing::warn!("recovery failed halfway, retrying: {}", chain(&error)),
            ended => ended?,
        }
        Ok(expired)
    }

    /// Three separate transactions: a single statement's snapshot is older than the locks it waits for.
    async fn try_round(&mut self, store: &dyn Store, may_judge: bool, expired: &mut Vec<Expired>) -> Result<()> {
        self.look_in = None;
        let any = match may_judge {
            true => {
                let judged = store.mark_dead().await?;
                self.look_in = judged.look_in;
                judged.any
            }
            false => self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY),
        };
        if !any && !self.pending {
            return Ok(());
        }
        // Stays set if anything below fails.
        self.pending = true;
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
        Ok(())
    }
}
