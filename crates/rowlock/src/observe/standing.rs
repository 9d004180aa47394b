//! Where many jobs stand, in one cheap read; and which of a queue nobody has taken.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{Observe, state_word};
use crate::{
    error::{Error, Result},
    job::check_name,
    state::State,
    store::triggers::StandingQuery,
};

/// How many are read at once.
const JOBS_MAX: usize = 1000;

/// Where one job stands, without its payload and history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Standing {
    /// The job's number in this database.
    pub id: i64,
    /// The name that effect keys derive from.
    pub uid: Uuid,
    /// Its queue.
    pub queue: String,
    /// The group it is in.
    pub group: Option<String>,
    /// Where it stands.
    #[serde(serialize_with = "state_word")]
    pub state: State,
    /// How often it was claimed; 0 when it is finished.
    pub epoch: i64,
    /// When it is due, if it is ready or waits.
    pub due_at: Option<Timestamp>,
    /// Whether it was due by the database's clock when it was looked at.
    pub due: bool,
}

/// Which jobs of a queue to list that stand in ready and that no worker has taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Untaken {
    /// Of this queue.
    pub queue: String,
    /// Those that nobody has triggered, instead of those that are due.
    pub untriggered: bool,
    /// Only those that were enqueued, or are due, for longer than this.
    pub grace: Duration,
    /// Only those behind this due time and id: the next page.
    pub after: Option<(Timestamp, i64)>,
    /// At most this many, by due time and id; at most 1,000.
    pub max: u32,
}

impl Untaken {
    /// Those of this queue that are due for longer than `grace`; the first hundred.
    pub fn due(queue: impl Into<String>, grace: Duration) -> Untaken {
        Untaken {
            queue: queue.into(),
            untriggered: false,
            grace,
            after: None,
            max: 100,
        }
    }

    /// Those of this queue that were enqueued with `on_trigger` longer than `grace` ago and that nobody has triggered; the
    /// first hundred.
    pub fn untriggered(queue: impl Into<String>, grace: Duration) -> Untaken {
        Untaken {
            untriggered: true,
            ..Untaken::due(queue, grace)
        }
    }
}

impl Observe {
    /// Where each of these jobs stands, in no promised order; those that are not there are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 1,000; the database could not be read. Cancel-safe.
    pub async fn standing(&self, ids: &[i64]) -> Result<Vec<Standing>> {
        if ids.len() > JOBS_MAX {
            let problem = format!("{} given, at most {JOBS_MAX} per call", ids.len());
            return Err(Error::invalid("ids", problem));
        }
        self.store.standing(StandingQuery::Of(ids)).await
    }

    /// Jobs that stand in ready and that no worker has taken for longer than a grace. Fewer than asked for means that there
    /// are no more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name, or more than 1,000; the database could not be read. Cancel-safe.
    pub async fn untaken(&self, which: &Untaken) -> Result<Vec<Standing>> {
        check_name("queue", &which.queue)?;
        if usize::try_from(which.max).unwrap_or(usize::MAX) > JOBS_MAX {
            let problem = format!("{} requested, at most {JOBS_MAX} per call", which.max);
            return Err(Error::invalid("max", problem));
        }
        self.store.standing(StandingQuery::Untaken(which)).await
    }
}
