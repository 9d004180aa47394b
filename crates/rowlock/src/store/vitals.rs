//! For the doctor: health data that only the database itself has.

use crate::observe::Finding;

/// A longer history is kept on purpose, or because it was never removed.
const HISTORY_DAYS: i64 = 60;

/// How far the history reaches back.
pub fn retention(days: i64) -> Finding {
    let said = format!("the history reaches back {days} days");
    match days > HISTORY_DAYS {
        true => Finding::warn(
            "retention",
            format!("{said}: nobody removes what is over, unless it is meant to be kept for so long"),
            "rowlock prune --finished 14d; and see that a worker runs, whose upkeep does it",
        ),
        false => Finding::ok("retention", said),
    }
}
