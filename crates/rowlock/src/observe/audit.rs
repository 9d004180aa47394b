//! What operators did: every operator command leaves a row.

use jiff::Timestamp;
use serde::Serialize;

use super::Observe;
use crate::{
    error::Result,
    id::{AuditNo, JobId},
};

/// One operator command.
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
    /// Which job; `None` for no job, or for more than one.
    pub job: Option<JobId>,
    /// Why, or the object of the command.
    pub detail: Option<String>,
    /// How many jobs.
    pub jobs: i64,
    /// The value before; a time is in RFC 3339.
    pub before: Option<String>,
    /// The value after.
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
    /// Whether this command notes times as before and after: when the job was due, and when it is due now.
    pub(crate) fn has_times(verb: &str) -> bool {
        ["delay", "run now"].contains(&verb)
    }
}

impl Observe {
    /// What operators did, newest first; rows older than the retention of the audit are gone.
    ///
    /// # Errors
    /// The database could not be read. Cancel-safe.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        self.store.audit(filter).await
    }
}
