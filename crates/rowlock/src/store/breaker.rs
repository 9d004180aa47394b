//! Breakers: one row per dependency, moved under its lock and only from the version that was read; and the claims that
//! check it.

use super::{
    ClaimReply, Store,
    rows::{Columns, Noun},
};
use crate::{
    breaker::{Breaker, BreakerChange, BreakerView, Note},
    error::Result,
};

/// The answer to a claim of probes.
#[derive(Debug)]
pub enum ProbeReply {
    /// As for any claim. The jobs count as probes of these breakers, at these versions, while their leases last.
    Claimed {
        tried: Vec<(String, i64)>,
        reply: ClaimReply,
    },
    /// The maximum number of probes is running.
    Full,
    /// One of the breakers stays open for longer, or another caller is moving it now; or all are closed.
    NotNow,
}

/// How a breaker is to be moved.
#[derive(Clone, Copy, Debug)]
pub enum BreakerMove<'a> {
    /// Creates the breaker with these settings, or updates its settings. Its state does not change.
    Declare { policy: &'a Breaker, by: &'a str },
    /// A worker observed this about the dependency.
    Note(&'a Note),
}

impl Noun for BreakerView {
    fn of(row: &impl Columns) -> sqlx::Result<BreakerView> {
        Ok(BreakerView {
            name: row.read("name")?,
            state: row.read("state")?,
            forced: row.read("forced")?,
            failures: row.read("failures")?,
            trips: row.read("trips")?,
            open_until: row.read("open_until")?,
            probing: row.read("probing")?,
            policy: Breaker::stored(
                row.read("threshold")?,
                row.read("cooldown_us")?,
                row.read("cooldown_max_us")?,
                row.read("probes")?,
            ),
            version: row.read("version")?,
            changed_at: row.read("changed_at")?,
            changed_by: row.read("changed_by")?,
            reason: row.read("reason")?,
            due: row.read("due")?,
        })
    }
}

impl Noun for BreakerChange {
    fn of(row: &impl Columns) -> sqlx::Result<BreakerChange> {
        Ok(BreakerChange {
            version: row.read("version")?,
            from: row.read("from_state")?,
            to: row.read("to_state")?,
            forced: row.read("forced")?,
            at: row.read("changed_at")?,
            by: row.read("changed_by")?,
            reason: row.read("reason")?,
        })
    }
}

/// Creates or updates these breakers with these settings.
pub async fn declare(store: &dyn Store, breakers: &[(String, Breaker)], by: &str) -> Result<()> {
    for (name, policy) in breakers {
        store.move_breaker(name, BreakerMove::Declare { policy, by }).await?;
    }
    Ok(())
}
