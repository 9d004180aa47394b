//! One picture per lane.
use crate::bench::Bench;
use crate::verdict::Verdict;

/// Nothing yet.
pub(crate) fn draw(_bench: &Bench, _verdict: &Verdict) -> Option<String> {
    None
}
