//! What people did: every verb of an operator leaves a row.

use jiff::Timestamp;
use serde::Serialize;

use super::Observe;
use crate::error::Result;

/// How many rows a filter that says nothing of it gets.
const MAX: i64 = 100;

/// One thing that somebody did.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AuditView {
    /// Its number; later ones are higher.
    pub no: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What: `cancel`, `pause`, `rollout` and so on.
    pub verb: String,
    /// Which job; `None` where it was none, or more than one.
    pub job: Option<i64>,
    /// Why, or what it was done to.
    pub detail: Option<String>,
    /// How many jobs.
    pub jobs: i64,
    /// How it stood before; a time is as in RFC 3339.
    pub before: Option<String>,
    /// How it stood after.
    pub after: Option<String>,
}

/// Which rows of the audit to read; every set field narrows.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only this job's.
    pub job: Option<i64>,
    /// Only what this actor did.
    pub actor: Option<String>,
    /// Only numbers below this one: the next page.
    pub below: Option<i64>,
    /// At most this many, newest first; 0 means 100.
    pub max: i64,
}

impl AuditView {
    /// Whether before and after are times in what this verb notes: when the job was due, and when it is.
    pub(crate) fn has_times(verb: &str) -> bool {
        ["delay", "run now"].contains(&verb)
    }
}

impl AuditFilter {
    pub(crate) fn limit(&self) -> i64 {
        if self.max > 0 { self.max } else { MAX }
    }
}

impl Observe {
    /// What people did, newest first; what is older than the retention of the audit is gone.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        self.store.audit(filter).await
    }
}
