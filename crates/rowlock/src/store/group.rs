//! Groups.

/// What upkeep reports when it had to repair groups.
pub const STUCK: &str = "repaired groups that waited for a finished job to pass its turn on";
