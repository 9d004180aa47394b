//! The storage contract for breakers: one row per dependency, moved under its lock and only from the version that was
//! read; and the claims that heed it.

use super::{
    ClaimAsk, ClaimReply, Fut,
    rows::{Columns, Noun},
};
use crate::breaker::{Breaker, BreakerChange, BreakerView, Force, Note};

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

/// One room's breakers. Each verb is a commit.
pub trait Breakers: Send + Sync {
    /// Makes sure that these are there, with these settings. Where they stand is left alone.
    fn declare_breakers<'a>(&'a self, breakers: &'a [(String, Breaker)], by: &'a str) -> Fut<'a, ()>;
    /// Those with these names, or all of them, by name.
    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>>;
    /// The last changes of one, newest first.
    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>>;
    /// Takes a note into account; as it stands then, if that changed anything.
    fn note_breaker<'a>(&'a self, note: &'a Note) -> Fut<'a, Option<BreakerView>>;
    /// Puts one where a person wants it, and notes who did it; `None` when there is none of this name, `false` when it
    /// was there before.
    fn force_breaker<'a>(&'a self, name: &'a str, force: Force, actor: &'a str) -> Fut<'a, Option<bool>>;
    /// Claims as many jobs as may try these breakers now, all of them with one job; never waits for who moves one. The
    /// names are in order.
    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply>;
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
