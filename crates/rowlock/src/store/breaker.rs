//! Breakers: one row per dependency, moved under its lock and only from the version that was
//! read; and the claims that heed it.

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
    /// As for any claim; the jobs count as probes of these breakers, at these versions, while their leases last.
    Claimed {
        tried: Vec<(String, i64)>,
        reply: ClaimReply,
    },
    /// As many as may are under way.
    Full,
    /// One of them is open for longer, or somebody moves it just now; or all are closed.
    NotNow,
}

/// How a breaker is to be moved.
#[derive(Clone, Copy, Debug)]
pub enum BreakerMove<'a> {
    /// It is there, with these settings. Where it stands is left alone.
    Declare { policy: &'a Breaker, by: &'a str },
    /// A worker saw this of its dependency.
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

/// Makes sure that these are there, with these settings.
pub async fn declare(store: &dyn Store, breakers: &[(String, Breaker)], by: &str) -> Result<()> {
    for (name, policy) in breakers {
        store.move_breaker(name, BreakerMove::Declare { policy, by }).await?;
    }
    Ok(())
}
