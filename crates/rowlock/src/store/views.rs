//! Jobs, cases and workers as operators see them.

use serde_json::Value;

use super::rows::{Columns, Noun};
use crate::{
    case::CaseView,
    observe::{AttemptView, JobFilter, JobView, LaneStatus, WorkerStatus},
};

/// Which jobs to list.
#[derive(Clone, Copy, Debug)]
pub enum JobQuery<'a> {
    One(i64),
    /// Every link of the chain that this job belongs to, in order of position and id.
    Chain(i64),
    /// The jobs that match, newest first.
    Filter(&'a JobFilter),
}

impl Noun for JobView {
    fn of(row: &impl Columns) -> sqlx::Result<JobView> {
        let tags: Option<Value> = row.read("tags")?;
        Ok(JobView {
            id: row.read("id")?,
            uid: row.read("uid")?,
            kind: row.read("kind")?,
            version: row.read("version")?,
            queue: row.read("queue")?,
            priority: row.read("priority")?,
            state: row.read("state")?,
            attempt: row.read("attempt")?,
            attempts_max: row.read("attempts_max")?,
            epoch: row.read("epoch")?,
            due_at: row.read("due_at")?,
            worker: row.read("worker")?,
            claimed_at: row.read("claimed_at")?,
            last_outcome: row.read("last_outcome")?,
            last_ended_at: row.read("last_ended_at")?,
            last_error: row.read("last_error")?,
            result: row.read("result")?,
            payload: row.read::<Option<_>>("payload")?.unwrap_or_default(),
            tags: tags.and_then(|t| serde_json::from_value(t).ok()).unwrap_or_default(),
            chain: row.read("chain")?,
            position: row.read("position")?,
            expires_at: row.read("expires_at")?,
            created_at: row.read("created_at")?,
            waits_for: row.read("waits_for")?,
            group: row.read("in_group")?,
            key: row.read("key")?,
        })
    }
}

impl Noun for AttemptView {
    fn of(row: &impl Columns) -> sqlx::Result<AttemptView> {
        Ok(AttemptView {
            epoch: row.read("epoch")?,
            attempt: row.read("attempt")?,
            worker: row.read("worker")?,
            outcome: row.read("outcome")?,
            started_at: row.read("started_at")?,
            ended_at: row.read("ended_at")?,
            error: row.read("error")?,
            result: row.read("result")?,
        })
    }
}

impl Noun for CaseView {
    fn of(row: &impl Columns) -> sqlx::Result<CaseView> {
        Ok(CaseView {
            id: row.read("id")?,
            kind: row.read("kind")?,
            queue: row.read("queue")?,
            reason: row.read("reason")?,
            attempt: row.read("attempt")?,
            attempts_max: row.read("attempts_max")?,
            retired_at: row.read("retired_at")?,
            history: row.read::<Option<_>>("history")?.unwrap_or_default(),
            error_no: row.read("error_no")?,
            owner: row.read("owner")?,
            note: row.read("note")?,
        })
    }
}

impl Noun for LaneStatus {
    fn of(row: &impl Columns) -> sqlx::Result<LaneStatus> {
        Ok(LaneStatus {
            queue: row.read("queue")?,
            kind: row.read("kind")?,
            due: row.read("due")?,
            scheduled: row.read("scheduled")?,
            waiting: row.read("waiting")?,
            leased: row.read("leased")?,
            cases: row.read("cases")?,
            more: row.read("more")?,
            oldest_due_ms: row.read("oldest_due_ms")?,
        })
    }
}

impl Noun for WorkerStatus {
    fn of(row: &impl Columns) -> sqlx::Result<WorkerStatus> {
        Ok(WorkerStatus {
            id: row.read("id")?,
            name: row.read("name")?,
            lease_ms: row.read("lease_ms")?,
            beat_age_ms: row.read("beat_age_ms")?,
            dead: row.read("dead")?,
            leases: row.read("leases")?,
            started_at: row.read("started_at")?,
        })
    }
}
