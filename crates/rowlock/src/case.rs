//! A case: a retired job with its history, open for a decision.

use jiff::Timestamp;
use serde::Serialize;

/// One retired job as an operator sees it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseView {
    /// The job.
    pub id: i64,
    /// Its kind; empty when the body is missing.
    pub kind: String,
    /// Its queue; empty when the body is missing.
    pub queue: String,
    /// Why it was retired.
    pub reason: String,
    /// How many attempts it used.
    pub attempt: i32,
    /// How many it had.
    pub attempts_max: i32,
    /// When it was retired.
    pub retired_at: Timestamp,
    /// Every ended attempt, oldest first, copied here so that it outlives the outcome log: a JSON array of objects
    /// with `epoch`, `attempt`, `outcome`, `worker`, `started_at`, `ended_at` and `error`.
    pub history: serde_json::Value,
}
