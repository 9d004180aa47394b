//! The storage contract for groups.
//!
//! A group has one row while it has a job. Its head is the only job of it that stands in ready or in lease, or in a case that
//! stops the group; the others are in waiting. A settlement says whether it passes the turn on, and that is then part of its
//! commit. Where an enqueue was open at that moment, its job is found by the sweep.

use super::Fut;

/// What upkeep says when it had to let groups go on.
pub const STUCK: &str = "repaired groups that waited for a finished job to pass its turn on";

/// The engine's verbs for groups, on connections of the store's own.
pub trait Groups: Send + Sync {
    /// Gives groups without a head their next one, removes those that nobody is in, and holds back what is paused, up to so
    /// many in one commit. Wakes are sent after it. [`Waits::sweep_waits`](super::waits::Waits) tells when to call it.
    fn sweep_groups(&self, max: i32) -> Fut<'_, ()>;
}
