//! The storage contract for the doctor: what only the database itself knows of its own health.

use super::Fut;
use crate::observe::Finding;

/// The database's own part of a check-up, on a connection of the store's own.
pub trait Vitals: Send + Sync {
    /// What it says of itself. The shortest lease of a live worker is what its settings are held against.
    fn vitals(&self, lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>>;
}
