//! Groups.

/// What upkeep says when it had to let groups go on.
pub const STUCK: &str = "repaired groups that waited for a finished job to pass its turn on";
