//! Writes settlements that have no own transaction, gathered into few commits.
//!
//! A batch that fails is sent again until the database answers. A batch that may have committed without a reply is
//! recognised by its tokens: what the second try does not return is looked up, not guessed.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc::UnboundedReceiver};
use tokio_util::task::TaskTracker;

use super::{
    breaker::BreakerNews,
    hooks,
    leases::{JobShared, Leases},
    shared::{Claims, Shared},
};
use crate::{
    attempt::{
        Finished,
        hand::{Cut, Held},
    },
    error::Error,
    event::Skipped,
    fault::point,
    handle::Fail,
    state::Ended,
    store::{Resolved, Settlement, keys::may_wait},
    trace,
};

/// How long a batch waits for more ends, and for how many at most.
const GATHER: Duration = Duration::from_millis(5);
const BATCH_MAX: usize = 500;
/// How many batches may be under way at the same time: while one commits, the next is sent.
const BATCHES_MAX: usize = 2;
/// How often the database may refuse a batch before its entries are written one by one.
const REFUSED_MAX: u32 = 2;

/// One attempt's end, to be written.
pub(crate) struct ToSettle<C: Claims> {
    pub(crate) settlement: Settlement,
    pub(crate) skipped: Option<Skipped>,
    pub(crate) job: Arc<C::Held>,
}

/// Runs until every sender is gone and everything is written, or the worker is gone.
pub(crate) async fn run(shared: Arc<JobShared>, mut rx: UnboundedReceiver<ToSettle<Leases>>) {
    let beside = TaskTracker::new();
    let turns = Arc::new(Semaphore::new(BATCHES_MAX));
    while let Some(first) = rx.recv().await {
        let gathered = tokio::time::sleep(GATHER);
        tokio::pin!(gathered);
        // While all turns are taken, more ends come in, so batches grow with the load.
        let Ok(turn) = turns.clone().acquire_owned().await else {
            break;
        };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                biased;
                more = rx.recv_many(&mut batch, room) => if more == 0 { break },
                () = &mut gathered => break,
            }
        }
        // A key or a group may have to wait for an open transaction, or a key may be refused. Write these apart from
        // the batch.
        let (waiting, batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|end: &ToSettle<Leases>| may_wait(&end.settlement.next));
        write_apart(&shared, waiting, &beside);
        if !batch.is_empty() {
            let (shared, tracker) = (shared.clone(), beside.clone());
            beside.spawn(async move {
                write_batch(&shared, batch, &tracker).await;
                drop(turn);
            });
        }
    }
    beside.close();
    beside.wait().await;
}

/// Writes a batch. One that the database refuses is written again entry by entry.
async fn write_batch(shared: &Arc<JobShared>, batch: Vec<ToSettle<Leases>>, beside: &TaskTracker) {
    let jobs = batch.len();
    match write(shared, shared.store(), batch).await {
        None => shared.subtract_unsettled(jobs),
        Some(refused) => write_apart(shared, refused, beside),
    }
}

/// Writes each entry separately and concurrently, so that an entry that fails does not delay the others.
fn write_apart(shared: &Arc<JobShared>, batch: Vec<ToSettle<Leases>>, beside: &TaskTracker) {
    for entry in batch {
        let shared = shared.clone();
        beside.spawn(async move {
            write(&shared, shared.store(), vec![entry]).await;
            shared.subtract_unsettled(1);
        });
    }
}

/// Writes ends and announces them. Returns several that the database refused together: one of them may be the reason.
pub(crate) async fn write<C: Claims>(
    shared: &Shared<C>,
    store: &C::Store,
    batch: Vec<ToSettle<C>>,
) -> Option<Vec<ToSettle<C>>> {
    let jobs = batch.len();
    let mut held = Vec::with_capacity(jobs);
    let mut skips = Vec::with_capacity(jobs);
    let mut settlements = Vec::with_capacity(jobs);
    for entry in batch {
        settlements.push(entry.settlement);
        skips.push(entry.skipped);
        held.push(entry.job);
    }
    let mut wait = Duration::from_millis(50);
    let mut sent_before = false;
    let mut refused = 0;
    point!("before-batch");
    let applied = loop {
        match shared.claims.settle(store, &held, &settlements).await {
            Ok(applied) => break applied,
            Err(error @ Error::KeyConflict { .. }) if jobs == 1 => {
                // Nothing was written. What the handler asked for cannot be written, so a person must decide.
                settlements[0] = held[0].hand().ending.failed(Fail::from(error));
                continue;
            }
            Err(error) => {
                if let [job] = &*held
                    && shared.claims.abandons(job, &error)
                {
                    abandon(shared, &**job);
                    return None;
                }
                tracing::warn!(jobs, "settle failed, retrying: {}", error.cause());
                sent_before = true;
                refused += u32::from(error.code().is_some());
            }
        }
        if refused >= REFUSED_MAX && jobs > 1 {
            let batch = settlements.into_iter().zip(skips).zip(held);
            let batch = batch.map(|((settlement, skipped), job)| ToSettle {
                settlement,
                skipped,
                job,
            });
            return Some(batch.collect());
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.gone.cancelled() => return None,
        }
        wait = (wait * 2).min(Duration::from_secs(1));
    };
    point!("after-batch");
    for (((settlement, skipped), job), applied) in settlements.into_iter().zip(skips).zip(held).zip(applied) {
        let applied = applied || (sent_before && committed_earlier(shared, store, &job, &settlement).await);
        match applied {
            true => announce(shared, &*job, settlement.ended, skipped, settlement.error).await,
            false if job.hand().is_in_doubt() => announce_late(shared, store, &job, &settlement).await,
            false => drop(announce_lost(shared, &*job)),
        }
    }
    None
}

/// The worker stopped before it knew whether a commit happened, and now its failure finds no lease: the commit had
/// happened, or another worker has the job. If it can no longer be found out, nothing is announced.
async fn announce_late<C: Claims>(shared: &Shared<C>, store: &C::Store, job: &C::Held, sent: &Settlement) {
    let token = job.hand().token;
    let Some(resolved) = looked_up(shared, store, job, sent).await else {
        return shared.let_go(token);
    };
    let ended = match resolved {
        Resolved::Ended(ended) if ended != Ended::Lost => Some(ended),
        _ => None,
    };
    shared.commit_resolved(token, ended.is_some());
    match ended {
        Some(ended) => announce(shared, job, ended, None, None).await,
        None => drop(announce_lost(shared, job)),
    }
}

/// Whether the first try of an end that was sent again had committed.
async fn committed_earlier<C: Claims>(shared: &Shared<C>, store: &C::Store, job: &C::Held, sent: &Settlement) -> bool {
    let resolved = looked_up(shared, store, job, sent).await;
    matches!(resolved, Some(Resolved::Ended(ended)) if ended == sent.ended)
}

/// How an attempt ended, asked until there is an answer or the worker is gone.
async fn looked_up<C: Claims>(
    shared: &Shared<C>,
    store: &C::Store,
    job: &C::Held,
    sent: &Settlement,
) -> Option<Resolved> {
    loop {
        match shared.claims.resolve(store, job, sent).await {
            Ok(resolved) => return Some(resolved),
            Err(error) if shared.claims.abandons(job, &error) => return None,
            Err(_) => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                () = shared.gone.cancelled() => return None,
            },
        }
    }
}

/// What is left to do after an attempt.
pub(crate) enum Left<C: Claims> {
    /// Nothing, or other code does it.
    Nothing,
    /// Its end committed and is announced; the breakers must be notified.
    Tell(Vec<BreakerNews>),
    Write(ToSettle<C>),
}

/// Announces what an attempt has settled itself, and decides how one that was cut off ends.
pub(crate) fn conclude<C: Claims>(shared: &Shared<C>, finished: Finished, job: Arc<C::Held>) -> Left<C> {
    let hand = job.hand();
    let retry = |delay: Option<Duration>, why| {
        let fail = delay.map_or_else(|| Fail::retry(why), |delay| Fail::retry_after(delay, why));
        (hand.ending.failed(fail), None)
    };
    let (settlement, skipped) = match finished {
        Finished::Settle { settlement, skipped } => (settlement, skipped),
        Finished::Settled { ended, skipped, error } => {
            return Left::Tell(announced(shared, &*job, ended, skipped, error));
        }
        Finished::LeaseLost => return announce_lost(shared, &*job),
        Finished::Cut if hand.is_in_doubt() && !C::LOGS_ENDS => return abandon(shared, &*job),
        Finished::Cut => match hand.why() {
            // The watch records it.
            Some(Cut::TimeLimit) => return Left::Nothing,
            Some(Cut::DeclaredDead) | None => return announce_lost(shared, &*job),
            Some(Cut::LeaseEnding) => {
                let why = "worker could not renew its lease in time; the handler was stopped";
                retry(None, why)
            }
            Some(Cut::FailedOver) => {
                let why = "the database failed over; the handler's transaction was on the old server";
                retry(Some(Duration::ZERO), why)
            }
            Some(Cut::Stopped) => retry(Some(Duration::ZERO), "worker stopped before the handler finished"),
        },
    };
    Left::Write(ToSettle {
        settlement,
        skipped,
        job,
    })
}

/// The outcome committed: announces it.
pub(crate) async fn announce<C: Claims>(
    shared: &Shared<C>,
    job: &C::Held,
    ended: Ended,
    skipped: Option<Skipped>,
    error: Option<String>,
) {
    let news = announced(shared, job, ended, skipped, error);
    C::tell_breakers(shared, news).await;
}

/// Announces an end that committed; returns what the caller must report to the breakers.
pub(crate) fn announced<C: Claims>(
    shared: &Shared<C>,
    job: &C::Held,
    ended: Ended,
    skipped: Option<Skipped>,
    error: Option<String>,
) -> Vec<BreakerNews> {
    let job = job.hand();
    shared.let_go(job.token);
    let news = shared.breakers.news(job, ended, skipped, error.as_deref());
    shared.emit(job.settled(ended, skipped, error));
    hooks::start(shared, job, ended);
    news
}

/// The lease was lost and the result dropped.
pub(crate) fn announce_lost<C: Claims>(shared: &Shared<C>, job: &C::Held) -> Left<C> {
    let job = job.hand();
    shared.let_go(job.token);
    tracing::info!(
        job = job.token.id,
        kind = job.names.kind,
        "lease lost; result of attempt {} dropped",
        job.ending.attempt
    );
    shared.emit(job.lost());
    Left::Nothing
}

/// This worker can no longer write the end; recovery will.
fn abandon<C: Claims>(shared: &Shared<C>, job: &C::Held) -> Left<C> {
    shared.let_go(job.hand().token);
    trace::ended(job.hand().shown(), Ended::Lost.as_str(), true, None);
    Left::Nothing
}
