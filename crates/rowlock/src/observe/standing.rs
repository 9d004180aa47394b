//! The state of many jobs, in one cheap read; and which jobs of a queue no worker has taken.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{Observe, state_word};
use crate::{
    error::{Error, Result},
    id::JobId,
    job::check_name,
    state::State,
    store::triggers::StandingQuery,
};

/// How many jobs one call reads at most.
const JOBS_MAX: usize = 1000;

/// The state of one job, without its payload and history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Standing {
    /// The job's number in this database.
    pub id: JobId,
    /// The name that effect keys derive from.
    pub uid: Uuid,
    /// Its queue.
    pub queue: String,
    /// The group it is in.
    pub group: Option<String>,
    /// Its state.
    #[serde(serialize_with = "state_word")]
    pub state: State,
    /// How often it was claimed; 0 when it is finished.
    pub epoch: i64,
    /// When it is due, if it is ready or waits.
    pub due_at: Option<Timestamp>,
    /// Whether it was due by the database's clock when it was read.
    pub due: bool,
}

/// Lists the jobs of a queue that are in ready and that no worker has taken. The first 100 of them unless set.
#[derive(Clone, Debug)]
pub struct Untaken {
    pub(crate) queue: String,
    pub(crate) untriggered: bool,
    pub(crate) grace: Duration,
    pub(crate) after: Option<(Timestamp, i64)>,
    pub(crate) limit: u32,
}

impl Untaken {
    /// Jobs of this queue that have been due for longer than `grace`.
    pub fn due(queue: impl Into<String>, grace: Duration) -> Untaken {
        Untaken {
            queue: queue.into(),
            untriggered: false,
            grace,
            after: None,
            limit: 100,
        }
    }

    /// Jobs of this queue that were enqueued with `on_trigger` longer than `grace` ago and were not triggered.
    pub fn untriggered(queue: impl Into<String>, grace: Duration) -> Untaken {
        Untaken {
            untriggered: true,
            ..Untaken::due(queue, grace)
        }
    }

    /// Only jobs after this due time and id, which is the next page; `None` starts at the first.
    pub fn after(mut self, last: impl Into<Option<(Timestamp, JobId)>>) -> Untaken {
        self.after = last.into().map(|(due_at, JobId(id))| (due_at, id));
        self
    }

    /// At most this many, by due time and id (100 unless set, at most 1,000).
    pub fn limit(mut self, jobs: u32) -> Untaken {
        self.limit = jobs;
        self
    }
}

impl Observe {
    /// The state of each of these jobs, in no promised order; jobs that do not exist are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 1,000; the database could not be read. Cancel-safe.
    pub async fn standing(&self, ids: &[JobId]) -> Result<Vec<Standing>> {
        if ids.len() > JOBS_MAX {
            let problem = format!("{} given, at most {JOBS_MAX} per call", ids.len());
            return Err(Error::invalid("ids", problem));
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.store.standing(StandingQuery::Of(&ids)).await
    }

    /// Jobs that are in ready and that no worker has taken for longer than a grace period. Fewer than requested means
    /// that there are no more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name, or more than 1,000; the database could not be read. Cancel-safe.
    pub async fn untaken(&self, which: &Untaken) -> Result<Vec<Standing>> {
        check_name("queue", &which.queue)?;
        if usize::try_from(which.limit).unwrap_or(usize::MAX) > JOBS_MAX {
            let problem = format!("{} requested, at most {JOBS_MAX} per call", which.limit);
            return Err(Error::invalid("limit", problem));
        }
        self.store.standing(StandingQuery::Untaken(which)).await
    }
}
