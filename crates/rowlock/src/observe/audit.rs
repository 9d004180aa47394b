//! What people did: every verb of an operator leaves a row.

use jiff::Timestamp;
use serde::Serialize;

use super::Observe;
use crate::{
    error::Result,
    id::{AuditNo, JobId},
};

/// One thing that somebody did.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AuditView {
    /// Its number; later ones are higher.
    pub no: AuditNo,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What: `cancel`, `pause`, `rollout` and so on.
    pub verb: String,
    /// Which job; `None` where it was none, or more than one.
    pub job: Option<JobId>,
    /// Why, or what it was done to.
    pub detail: Option<String>,
    /// How many jobs.
    pub jobs: i64,
    /// How it stood before; a time is as in RFC 3339.
    pub before: Option<String>,
    /// How it stood after.
    pub after: Option<String>,
}

/// Which rows of the audit to read; every setting narrows. The newest 100 unless set.
#[derive(Clone, Debug)]
pub struct AuditFilter {
    pub(crate) job: Option<JobId>,
    pub(crate) actor: Option<String>,
    pub(crate) below: Option<AuditNo>,
    pub(crate) limit: u32,
}

impl AuditFilter {
    /// Every row.
    pub const fn new() -> AuditFilter {
        AuditFilter {
            job: None,
            actor: None,
            below: None,
            limit: 100,
        }
    }

    /// Only what was done to this job.
    pub fn job(mut self, job: impl Into<JobId>) -> AuditFilter {
        self.job = Some(job.into());
        self
    }

    /// Only what this actor did.
    pub fn actor(mut self, actor: impl Into<String>) -> AuditFilter {
        self.actor = Some(actor.into());
        self
    }

    /// Only numbers below this one, which is the next page; `None` starts at the newest.
    pub fn below(mut self, no: impl Into<Option<AuditNo>>) -> AuditFilter {
        self.below = no.into();
        self
    }

    /// At most this many, newest first (100 unless set).
    pub fn limit(mut self, rows: u32) -> AuditFilter {
        self.limit = rows;
        self
    }
}

impl Default for AuditFilter {
    fn default() -> Self {
        AuditFilter::new()
    }
}

impl AuditView {
    /// Whether before and after are times in what this verb notes: when the job was due, and when it is.
    pub(crate) fn has_times(verb: &str) -> bool {
        ["delay", "run now"].contains(&verb)
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
