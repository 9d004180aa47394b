//! Which jobs and cases a list contains.

use crate::{
    id::{ErrorNo, JobId},
    state::State,
};

/// Which jobs to list; every setting narrows. The newest 100 of all jobs unless set.
///
/// ```
/// use rowlock::{State, observe::JobFilter};
///
/// let stuck = JobFilter::new().queue("mail").state(State::Case).limit(20);
/// ```
#[derive(Clone, Debug)]
pub struct JobFilter {
    pub(crate) queue: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) state: Option<State>,
    pub(crate) tag: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) below: Option<JobId>,
    pub(crate) limit: u32,
}

impl JobFilter {
    /// Every job.
    pub const fn new() -> JobFilter {
        JobFilter {
            queue: None,
            kind: None,
            state: None,
            tag: None,
            key: None,
            group: None,
            below: None,
            limit: 100,
        }
    }

    /// Only this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> JobFilter {
        self.queue = Some(queue.into());
        self
    }

    /// Only this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> JobFilter {
        self.kind = Some(kind.into());
        self
    }

    /// Only this state.
    pub fn state(mut self, state: State) -> JobFilter {
        self.state = Some(state);
        self
    }

    /// Only jobs with this tag.
    pub fn tag(mut self, tag: impl Into<String>) -> JobFilter {
        self.tag = Some(tag.into());
        self
    }

    /// Only the job that holds this key.
    pub fn key(mut self, key: impl Into<String>) -> JobFilter {
        self.key = Some(key.into());
        self
    }

    /// Only jobs of this group.
    pub fn group(mut self, group: impl Into<String>) -> JobFilter {
        self.group = Some(group.into());
        self
    }

    /// Only ids below this one, which is the next page; `None` starts at the newest.
    pub fn below(mut self, id: impl Into<Option<JobId>>) -> JobFilter {
        self.below = id.into();
        self
    }

    /// At most this many, newest first (100 unless set).
    pub fn limit(mut self, jobs: u32) -> JobFilter {
        self.limit = jobs;
        self
    }
}

impl Default for JobFilter {
    fn default() -> Self {
        JobFilter::new()
    }
}

/// Which open cases to list; every setting narrows. The newest 100 of all cases unless set.
///
/// ```
/// use rowlock::observe::CaseFilter;
///
/// let newest = CaseFilter::new().limit(20);
/// ```
#[derive(Clone, Debug)]
pub struct CaseFilter {
    pub(crate) error: Option<ErrorNo>,
    pub(crate) limit: u32,
}

impl CaseFilter {
    /// Every open case.
    pub const fn new() -> CaseFilter {
        CaseFilter {
            error: None,
            limit: 100,
        }
    }

    /// Only cases of this error.
    pub fn error(mut self, error: impl Into<ErrorNo>) -> CaseFilter {
        self.error = Some(error.into());
        self
    }

    /// At most this many, newest first (100 unless set).
    pub fn limit(mut self, cases: u32) -> CaseFilter {
        self.limit = cases;
        self
    }
}

impl Default for CaseFilter {
    fn default() -> Self {
        CaseFilter::new()
    }
}
