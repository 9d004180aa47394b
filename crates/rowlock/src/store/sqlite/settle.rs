//! Writes how attempts ended, with everything that follows.

use std::{collections::HashSet, time::Duration};

use serde::{Deserialize, Serialize};
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::{
    enqueue::{distinct, new_due_queues},
    group, keys, rows, sql,
};
use crate::{
    job::{Draft, Due},
    lease::Token,
    state::State,
    store::{
        Settlement, again,
        keys::{Conflict, any_keyed},
    },
};

/// The longest delay, so that adding it to a time cannot overflow.
const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// One element of the array that the settle statements read.
#[derive(Serialize)]
pub struct EndRow<'a> {
    pub id: i64,
    pub epoch: i64,
    pub worker: i64,
    pub outcome: &'a str,
    pub place: &'a str,
    pub delay_us: i64,
    pub error: Option<&'a str>,
    pub result: Option<&'a str>,
}

impl<'a> From<&'a Settlement> for EndRow<'a> {
    fn from(settlement: &'a Settlement) -> EndRow<'a> {
        let delay = settlement.delay.min(DELAY_MAX);
        EndRow {
            id: settlement.token.id,
            epoch: settlement.token.epoch,
            worker: settlement.token.worker.0,
            outcome: settlement.ended.as_str(),
            place: settlement.to.as_str(),
            delay_us: i64::try_from(delay.as_micros()).unwrap_or(i64::MAX),
            error: settlement.error.as_deref(),
            result: settlement.result.as_deref(),
        }
    }
}

/// Ends the leases whose tokens hold, and returns these tokens.
pub async fn end_leases(db: &mut SqliteConnection, now: i64, ends: &[EndRow<'_>]) -> sqlx::Result<HashSet<Token>> {
    // Most batches only finish jobs. The trigger runs once per row and would cost them a third more.
    let finished = ends.iter().all(|end| end.place == State::Finished.as_str());
    let text = if finished { sql::SETTLE_FINISHED } else { sql::SETTLE };
    let held = sqlx::query(text)
        .bind(rows::array(ends)?)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    held.iter().map(rows::token).collect()
}

/// The tokens that held, and the queues with new due work.
pub type Ends = (HashSet<Token>, Vec<i64>);

/// [`settle`] in a transaction that others may share: a conflict rolls back everything that it wrote.
pub async fn settle_all(
    db: &mut SqliteConnection,
    now: i64,
    batch: &[Settlement],
) -> sqlx::Result<Result<Ends, Conflict>> {
    if !batch.iter().any(|s| any_keyed(&s.next)) {
        return settle(db, now, batch).await;
    }
    keys::begin(db).await?;
    let settled = settle(db, now, batch).await?;
    keys::end(db, settled.is_ok()).await?;
    Ok(settled)
}

/// Settles a batch. A lost lease does not affect the other entries; a refused next link must roll all of them back.
pub async fn settle(db: &mut SqliteConnection, now: i64, batch: &[Settlement]) -> sqlx::Result<Result<Ends, Conflict>> {
    // The same token twice is one end, not an error that fails the other entries.
    let mut seen = HashSet::new();
    let batch: Vec<&Settlement> = batch.iter().filter(|s| seen.insert(s.token)).collect();
    let ends: Vec<EndRow> = batch.iter().map(|s| EndRow::from(*s)).collect();
    let held = end_leases(db, now, &ends).await?;
    let linked = linked(db, &batch).await?;
    let mut next = Vec::new();
    let (mut retired, mut turns) = (Vec::new(), Vec::new());
    for settlement in batch.iter().filter(|s| held.contains(&s.token)) {
        turns.extend(settlement.turn.map(|no| (no, Some(settlement.token.id))));
        if !linked.contains(&settlement.token.id) {
            next.extend(settlement.next.iter().cloned());
        }
        if settlement.to == State::Case {
            retired.push(settlement.token.id);
        }
    }
    next.extend(compensations(db, &retired).await?);
    let put = match keys::enqueue(db, now, &next).await? {
        Ok(put) => put,
        Err(conflict) => return Ok(Err(conflict)),
    };
    let mut woken = new_due_queues(&next, &put, now);
    woken.extend(group::pass(db, now, &turns).await?);
    Ok(Ok((held, distinct(woken))))
}

/// The jobs among these that were done before, so that their next links exist already.
async fn linked(db: &mut SqliteConnection, batch: &[&Settlement]) -> sqlx::Result<HashSet<i64>> {
    let again = again(batch.iter().copied());
    if again.is_empty() {
        return Ok(HashSet::new());
    }
    let done: Vec<i64> = sqlx::query_scalar(sql::WAS_DONE)
        .bind(rows::array(&again)?)
        .fetch_all(db)
        .await?;
    Ok(done.into_iter().collect())
}

/// What `Draft::to_json` stored.
#[derive(Deserialize)]
struct Compensation {
    uid: Uuid,
    kind: String,
    version: i32,
    queue: String,
    priority: i16,
    attempts_max: i32,
    payload: String,
    tags: Option<String>,
}

/// The compensations of jobs that were just retired, as the next links of their chains.
pub async fn compensations(db: &mut SqliteConnection, retired: &[i64]) -> sqlx::Result<Vec<Draft>> {
    if retired.is_empty() {
        return Ok(Vec::new());
    }
    let found = sqlx::query(sql::COMPENSATE)
        .bind(rows::array(retired)?)
        .fetch_all(db)
        .await?;
    let mut drafts = Vec::with_capacity(found.len());
    for row in &found {
        let id: i64 = row.try_get("id")?;
        // The failure path must not fail on bad data: the case is kept, and the log says what is missing.
        match serde_json::from_str::<Compensation>(row.try_get("if_retired")?) {
            Ok(stored) => drafts.push(Draft {
                uid: stored.uid,
                kind: stored.kind,
                version: stored.version,
                queue: stored.queue,
                priority: stored.priority,
                attempts_max: stored.attempts_max,
                payload: stored.payload,
                tags: stored.tags,
                due: Due::In(Duration::ZERO),
                expires_at: None,
                chain: row.try_get("chain")?,
                position: row.try_get("position")?,
                if_retired: None,
                trace: row.try_get("trace")?,
                wait: None,
                group: None,
                key: None,
            }),
            Err(error) => tracing::error!(id, "job retired, but its compensation cannot be read: {error}"),
        }
    }
    Ok(drafts)
}
