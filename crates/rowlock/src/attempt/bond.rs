//! How a job or row in hand relates to the breakers of its handler.

use std::sync::Mutex;

use super::hand::lock;
use crate::{
    breaker::{BreakerState, KnownBreakers},
    handle::Fail,
    settle::Ending,
    store::Settlement,
};

/// The dependencies of a job or row in hand.
#[derive(Default)]
pub(crate) struct Bond {
    /// Each dependency, with the version of its breaker at the claim.
    pub(crate) seen: Vec<(String, i64)>,
    /// The dependencies that the attempt probes, because their breaker is not closed.
    pub(crate) tries: Vec<String>,
    /// The dependency that the handler failed with.
    blamed: Mutex<Option<String>>,
}

impl Bond {
    pub(crate) fn new(seen: Vec<(String, i64)>, tries: Vec<String>) -> Bond {
        Bond {
            seen,
            tries,
            blamed: Mutex::default(),
        }
    }

    /// Whether the breakers that must be closed for a start are closed, as far as is known here.
    pub(crate) fn admitted(&self, known: &KnownBreakers) -> bool {
        self.seen.iter().all(|(name, version)| match known.of(name) {
            // Once another probe has opened the breaker again, this probe is pointless.
            Some(standing) if self.tries.contains(name) => {
                standing.state == BreakerState::Closed || standing.version <= *version
            }
            Some(standing) => standing.state == BreakerState::Closed,
            None => false,
        })
    }

    /// The dependency that the handler failed with.
    pub(crate) fn blamed(&self) -> Option<String> {
        lock(&self.blamed).clone()
    }

    /// The handler runs once more in the same attempt.
    pub(super) fn start_over(&self) {
        *lock(&self.blamed) = None;
    }

    /// What a handler's `Fail` becomes, and which dependency it blames.
    pub(super) fn failed(&self, ending: &Ending, fail: Fail) -> Settlement {
        lock(&self.blamed).clone_from(&fail.dependency);
        ending.failed(fail)
    }
}
