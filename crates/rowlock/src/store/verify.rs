//! The audit of the invariants: one statement each, all of one snapshot.

use super::Fut;
use crate::observe::{Breach, CheckView, Seen, VerifyLimits};

/// One room's audit.
pub trait Verify: Send + Sync {
    /// Every invariant in its order, in one transaction that only reads. A statement that runs out of time is stopped
    /// without an end to the transaction.
    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>>;
}

/// Reads the answer that every statement gives; `found` is a JSON array, or nothing.
pub fn seen(looked: i64, whole: bool, broken: i64, found: Option<&str>) -> sqlx::Result<Seen> {
    let breaches: Vec<Breach> =
        serde_json::from_str(found.unwrap_or("[]")).map_err(|e| sqlx::Error::Decode(e.into()))?;
    Ok(Seen {
        looked,
        whole,
        broken,
        breaches,
    })
}
