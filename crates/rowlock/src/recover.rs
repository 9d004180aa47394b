//! Expire the leases of dead workers, retire the exhausted, forget the dead.
//!
//! Any worker runs this on a jittered timer, whatever its load. It keeps no state that matters: a round that fails or
//! dies half-way is finished by the next one, here or elsewhere.

use std::time::{Duration, Instant};

use crate::{
    error::{Result, chain},
    store::{Expired, Store},
};

/// Leases ended in one commit.
const BATCH: i32 = 1000;
/// Rounds are at most this far apart; a dead worker is noticed within it.
const EVERY_MAX: Duration = Duration::from_millis(700);
/// While this worker may not judge, it still ends the leases of those whom others declared dead, this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// An aimed look is this late, so that it is never too early; all who aim at the same moment are spread by their clocks alone.
const MARGIN: Duration = Duration::from_millis(5);

/// One process's part in the recovery.
pub(crate) struct Recovery {
    every: Duration,
    looked_at: Option<Instant>,
    /// When a suspicion may be confirmed, counted from the last round.
    look_in: Option<Duration>,
    /// Dead workers still hold something that another transaction has locked.
    pending: bool,
    /// Until then nobody is declared dead from here: the database was out of reach a moment ago, for the others too, and
    /// their beats must have had their chance.
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

    /// The wait before the next round. Who is suspected is looked at as soon as that can tell: a second look that came by
    /// chance would keep the jobs of the dead waiting for longer than their lease and a second.
    pub(crate) fn pause(&self) -> Duration {
        let by_chance = self.every.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.look_in.map_or(by_chance, |aimed| by_chance.min(aimed + MARGIN))
    }

    /// One round; `may_judge` says that this worker itself is in good standing.
    pub(crate) async fn round(&mut self, store: &dyn Store, may_judge: bool) -> Result<Vec<Expired>> {
        let sees = self.blind_until.is_none_or(|until| Instant::now() >= until);
        let mut expired = Vec::new();
        let ended = self.try_round(store, may_judge && sees, &mut expired).await;
        if ended.is_err() {
            self.blind_until = Some(Instant::now() + self.blind_for);
        }
        match ended {
            // What was ended is told, whatever failed after it.
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
