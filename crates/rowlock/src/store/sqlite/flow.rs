//! A job's way through its places: enqueue, claim, settle, and the answer to a lost reply.
//!
//! SQLite cannot write two tables in one statement, so a verb is several statements in one transaction that holds the
//! write lock. Sets travel as one JSON array; no statement runs once per job. The files say `jsonb_each` where many
//! fields are taken from each element: it parses once, and halves the time of an enqueue.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sqlx::{Connection, Row, SqliteConnection};
use uuid::Uuid;

use super::{
    breaker, group,
    keys::{self, Put},
    rows::{self, StretchRow, Taken},
    sql, waits,
};
use crate::{
    job::{Draft, Due},
    key::Enqueued,
    lease::Token,
    state::State,
    store::{
        ClaimAsk, ClaimReply, Resolved, Settlement, again,
        keys::{Conflict, any_keyed},
    },
};

/// One statement's array holds at most this many drafts, or this many bytes of payload and one draft more.
const CHUNK_DRAFTS: usize = 1000;
const CHUNK_BYTES: usize = 8 << 20;

/// No due time lies further ahead, so that adding a delay to a time cannot overflow.
const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Bodies first, then places, in the transaction that is open. Ids in input order.
pub async fn enqueue(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Vec<i64>> {
    let mut ids = Vec::with_capacity(drafts.len());
    for chunk in chunks(drafts) {
        if chunk[0].wait.is_some() {
            ids.extend(waits::enqueue(db, now, chunk).await?);
            continue;
        }
        if chunk[0].group.is_some() {
            ids.extend(group::enqueue(db, now, chunk).await?);
            continue;
        }
        let array = rows::drafts(chunk)?;
        let mut new: Vec<i64> = sqlx::query_scalar(sql::ENQUEUE)
            .bind(array)
            .bind(now)
            .fetch_all(&mut *db)
            .await?;
        // `returning` promises no order; the ids themselves rise with the input.
        new.sort_unstable();
        ids.extend(new);
    }
    Ok(ids)
}

fn chunks(drafts: &[Draft]) -> impl Iterator<Item = &[Draft]> {
    let mut rest = drafts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |d: &&Draft| {
            let fit = bytes < CHUNK_BYTES;
            bytes += d.payload.len();
            fit
        };
        // A chunk holds jobs that wait, jobs of groups, or others.
        let sort = |d: &Draft| (d.wait.is_some(), d.group.is_some());
        let first = rest.first().map(sort);
        let alike = rest.iter().take(CHUNK_DRAFTS).take_while(|d| Some(sort(d)) == first);
        let len = alike.take_while(fits).count();
        let (chunk, later) = rest.split_at(len);
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// In a transaction that others may share: all or nothing, and nothing after a conflict.
pub async fn enqueue_all(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Put> {
    if !any_keyed(drafts) {
        return keys::enqueue(db, now, drafts).await;
    }
    keys::begin(db).await?;
    let put = keys::enqueue(db, now, drafts).await?;
    keys::end(db, put.is_ok()).await?;
    Ok(put)
}

/// On a caller's own connection, in or out of a transaction: all or nothing either way.
pub async fn enqueue_in(db: &mut SqliteConnection, now: i64, drafts: &[Draft]) -> sqlx::Result<Put> {
    if drafts.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    match db.begin().await {
        Ok(mut tx) => {
            let put = keys::enqueue(&mut tx, now, drafts).await?;
            match put {
                Ok(_) => tx.commit().await?,
                Err(_) => tx.rollback().await?,
            }
            return Ok(put);
        }
        // The caller wrote `begin` by hand and sqlx does not know: a savepoint by hand goes with it.
        Err(error) if within_transaction(&error) => {}
        Err(error) => return Err(error),
    }
    sqlx::raw_sql("savepoint rowlock_enqueue").execute(&mut *db).await?;
    let put = keys::enqueue(&mut *db, now, drafts).await;
    if !matches!(put, Ok(Ok(_))) {
        sqlx::raw_sql("rollback to savepoint rowlock_enqueue")
            .execute(&mut *db)
            .await?;
    }
    sqlx::raw_sql("release savepoint rowlock_enqueue")
        .execute(&mut *db)
        .await?;
    put
}

pub fn within_transaction(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|e| e.message().contains("within a transaction"))
}

/// Queues with a job among these that is new and due now.
pub fn new_due_queues(drafts: &[Draft], put: &[Enqueued], now: i64) -> Vec<i64> {
    let new = drafts.iter().zip(put).filter(|(_, put)| put.is_new());
    distinct(
        new.flat_map(|(draft, _)| due_queues(std::slice::from_ref(draft), now))
            .collect(),
    )
}

/// Queues with a job among these that is due now.
pub fn due_queues(drafts: &[Draft], now: i64) -> Vec<i64> {
    let due = |d: &&Draft| d.delay_us() == 0 && d.due_at().is_none_or(|at| at.as_microsecond() <= now);
    distinct(drafts.iter().filter(due).map(Draft::queue_no).collect())
}

pub fn distinct(mut queues: Vec<i64>) -> Vec<i64> {
    queues.sort_unstable();
    queues.dedup();
    queues
}

/// Takes due jobs queue by queue. The write lock makes it safe against any other claim, and against being declared
/// dead meanwhile.
pub async fn claim(db: &mut SqliteConnection, now: i64, ask: &ClaimAsk) -> sqlx::Result<ClaimReply> {
    let mut taken = Vec::new();
    let mut lanes: HashMap<i64, Vec<StretchRow>> = HashMap::with_capacity(ask.queues.len());
    let shut = shut(db, ask).await?;
    for stretch in ask.stretches.iter().filter(|stretch| !shut.contains(&stretch.kind_no)) {
        lanes
            .entry(stretch.queue_no)
            .or_default()
            .push(StretchRow::from(stretch));
    }
    for (queue_no, places) in &ask.queues {
        let rows = sqlx::query(sql::CLAIM)
            .bind(rows::array(&lanes.remove(queue_no).unwrap_or_default())?)
            .bind(queue_no)
            .bind(i64::from(ask.alone))
            .bind(now)
            // A negative limit would mean no limit.
            .bind((*places).max(0))
            .bind(ask.worker.0)
            .fetch_all(&mut *db)
            .await?;
        for row in &rows {
            taken.push(Taken::read(row)?);
        }
    }
    if taken.is_empty() {
        let alive = sqlx::query(sql::CLAIM_WORKER)
            .bind(ask.worker.0)
            .fetch_optional(&mut *db)
            .await?;
        return Ok(match alive {
            Some(_) => ClaimReply::Jobs(Vec::new()),
            None => ClaimReply::Dead,
        });
    }
    let found = sqlx::query(sql::CLAIM_HOLD)
        .bind(rows::array(&taken)?)
        .bind(ask.worker.0)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    // A body that does not read is as good as missing: one bad row must not fail the claim of the others.
    let mut bodies: HashMap<i64, _> = found.iter().filter_map(|row| rows::body(row).ok()).collect();
    let claimed = taken.into_iter().map(|t| {
        let body = bodies.remove(&t.id);
        t.claimed(ask.worker, now, body)
    });
    Ok(ClaimReply::Jobs(claimed.collect::<sqlx::Result<_>>()?))
}

/// The kinds with a breaker that is not closed.
async fn shut(db: &mut SqliteConnection, ask: &ClaimAsk) -> sqlx::Result<HashSet<i64>> {
    if ask.bound.is_empty() {
        return Ok(HashSet::new());
    }
    let names: Vec<&str> = ask.bound.iter().map(|(_, name)| name.as_str()).collect();
    let closed = breaker::closed(db, &names).await?;
    let shut = ask.bound.iter().filter(|(_, name)| !closed.contains(name));
    Ok(shut.map(|(kind_no, _)| *kind_no).collect())
}

/// One element of what the settle statements read.
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

/// Ends the leases whose tokens hold, and says which those were.
pub async fn end_leases(db: &mut SqliteConnection, now: i64, ends: &[EndRow<'_>]) -> sqlx::Result<HashSet<Token>> {
    let held = sqlx::query(sql::SETTLE)
        .bind(rows::array(ends)?)
        .bind(now)
        .fetch_all(&mut *db)
        .await?;
    held.iter().map(rows::token).collect()
}

/// The tokens that held, and the queues that got due work.
pub type Ends = (HashSet<Token>, Vec<i64>);

/// [`settle`] in a transaction that others may share: nothing is left of it after a conflict.
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

/// Settles a batch. Lost ones leave the others standing; a next link that is refused must take the rest with it.
pub async fn settle(db: &mut SqliteConnection, now: i64, batch: &[Settlement]) -> sqlx::Result<Result<Ends, Conflict>> {
    // The same token twice is one end, not an error that fails the others with it.
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

/// The jobs among these that were done before, and so have their next links already.
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

/// The compensations of jobs just retired, as the next links of their chains.
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
        // The failure path must not fail on data: the case stands, and the log says what is missing.
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

/// The write lock is held: whoever had the token has committed, rolled back, or closed.
pub async fn resolve(db: &mut SqliteConnection, token: Token) -> sqlx::Result<Resolved> {
    let outcome: Option<String> = sqlx::query_scalar(sql::RESOLVE_OUTCOME)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *db)
        .await?;
    if let Some(word) = outcome {
        return Ok(Resolved::Ended(rows::ended(&word)?));
    }
    let leased = sqlx::query(sql::RESOLVE_LOCK)
        .bind(token.id)
        .bind(token.epoch)
        .bind(token.worker.0)
        .fetch_optional(&mut *db)
        .await?;
    Ok(match leased {
        Some(_) => Resolved::StillLeased,
        None => Resolved::Lost,
    })
}
