//! Writes settlements that have no transaction of their own, gathered into few commits.
//!
//! A batch that fails is sent again until the database answers. A batch that may have committed without our hearing of
//! it is recognised by its tokens: what did not come back on the second try is looked up, not guessed.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc::UnboundedReceiver};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{hand::Shared, hooks};
use crate::{
    attempt::hand::InHand,
    error::Error,
    event::{Event, Skipped},
    fault::point,
    handle::Fail,
    lease::Token,
    state::Ended,
    store::{Resolved, Settlement, Store, keys::may_wait},
};

/// A batch waits this long for company, and no longer than this many.
const GATHER: Duration = Duration::from_millis(5);
const BATCH_MAX: usize = 500;
/// Batches that may be under way at once: while one commits, the next is on its way.
const BATCHES_MAX: usize = 2;
/// How often the database may refuse a batch before its entries are written one by one.
const REFUSED_MAX: u32 = 2;

/// One attempt's end, to be written.
pub(crate) struct ToSettle {
    pub(crate) settlement: Settlement,
    pub(crate) skipped: Option<Skipped>,
    pub(crate) job: Arc<InHand>,
}

/// Runs until every sender is gone and everything is written, or `give_up` fires.
pub(crate) async fn run(shared: Arc<Shared>, mut rx: UnboundedReceiver<ToSettle>, give_up: CancellationToken) {
    let beside = TaskTracker::new();
    let turns = Arc::new(Semaphore::new(BATCHES_MAX));
    while let Some(first) = rx.recv().await {
        let gathered = tokio::time::sleep(GATHER);
        tokio::pin!(gathered);
        // While all turns are taken more comes in, so that batches grow with the load.
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
        // A key or a group may have to wait for somebody's open transaction, a key be refused: no neighbour shares that.
        let (waiting, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(ToSettle::may_wait);
        apart(&shared, waiting, &give_up, &beside);
        if !batch.is_empty() {
            let (shared, give_up, tracker) = (shared.clone(), give_up.clone(), beside.clone());
            beside.spawn(async move {
                write(&shared, batch, &give_up, &tracker).await;
                drop(turn);
            });
        }
    }
    beside.close();
    beside.wait().await;
}

impl ToSettle {
    fn may_wait(&self) -> bool {
        may_wait(&self.settlement.next)
    }
}

async fn write(shared: &Arc<Shared>, batch: Vec<ToSettle>, give_up: &CancellationToken, beside: &TaskTracker) {
    let jobs = batch.len();
    let mut entries = Vec::with_capacity(jobs);
    let mut settlements = Vec::with_capacity(jobs);
    for ToSettle {
        settlement,
        skipped,
        job,
    } in batch
    {
        settlements.push(settlement);
        entries.push((skipped, job));
    }
    let mut wait = Duration::from_millis(50);
    let mut sent_before = false;
    let mut refused = 0;
    point!("before-batch");
    let applied = loop {
        match shared.store.settle(&settlements).await {
            Ok(applied) => break applied,
            Err(error @ Error::KeyConflict { .. }) if jobs == 1 => {
                // Nothing of it was written. What the handler asked for cannot be, so a person must look.
                settlements[0] = entries[0].1.ending.failed(Fail::from(error));
                continue;
            }
            Err(error) => {
                tracing::warn!(jobs, "settle failed, retrying: {}", error.cause());
                sent_before = true;
                refused += u32::from(error.code().is_some());
            }
        }
        if refused >= REFUSED_MAX && jobs > 1 {
            // One of them may be what the database refuses; from here on each stands for itself.
            let batch = settlements.into_iter().zip(entries);
            let batch = batch.map(|(settlement, (skipped, job))| ToSettle {
                settlement,
                skipped,
                job,
            });
            return apart(shared, batch.collect(), give_up, beside);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = give_up.cancelled() => return shared.settled(jobs),
        }
        wait = (wait * 2).min(Duration::from_secs(1));
    };
    point!("after-batch");
    shared.settled(jobs);
    for ((settlement, (skipped, job)), applied) in settlements.into_iter().zip(entries).zip(applied) {
        let applied = applied || (sent_before && committed_earlier(&*shared.store, &settlement, give_up).await);
        match applied {
            true => settled(shared, &job, settlement.ended, skipped, settlement.error),
            false if job.is_in_doubt() => late_news(shared, &job, give_up).await,
            false => lost(shared, &job),
        }
    }
}

/// The worker stopped before it knew what became of a commit, and now its failure finds no lease: the commit had happened,
/// or somebody else has the job. Where nobody can say it any more, nothing is said.
async fn late_news(shared: &Arc<Shared>, job: &InHand, give_up: &CancellationToken) {
    let Some(resolved) = looked_up(&*shared.store, job.token, give_up).await else {
        return shared.drop_job(job.token);
    };
    let ended = match resolved {
        Resolved::Ended(ended) if ended != Ended::Lost => Some(ended),
        _ => None,
    };
    let (id, epoch, committed) = (job.token.id, job.token.epoch, ended.is_some());
    shared.emit(Event::CommitResolved {
        id: id.into(),
        epoch,
        committed,
    });
    match ended {
        Some(ended) => settled(shared, job, ended, None, None),
        None => lost(shared, job),
    }
}

/// Writes each entry of a batch on its own, beside each other, so that one that fails holds up no other.
fn apart(shared: &Arc<Shared>, batch: Vec<ToSettle>, give_up: &CancellationToken, beside: &TaskTracker) {
    for entry in batch {
        let (shared, give_up, tracker) = (shared.clone(), give_up.clone(), beside.clone());
        beside.spawn(async move {
            let one: Pin<Box<dyn Future<Output = ()> + Send + '_>> =
                Box::pin(write(&shared, vec![entry], &give_up, &tracker));
            one.await;
        });
    }
}

/// Whether the first try of a batch that was sent again had committed after all.
pub(crate) async fn committed_earlier(store: &dyn Store, sent: &Settlement, give_up: &CancellationToken) -> bool {
    let resolved = looked_up(store, sent.token, give_up).await;
    matches!(resolved, Some(Resolved::Ended(ended)) if ended == sent.ended)
}

/// What became of an attempt, asked until there is an answer or it is time to give up.
async fn looked_up(store: &dyn Store, token: Token, give_up: &CancellationToken) -> Option<Resolved> {
    loop {
        match store.resolve(token).await {
            Ok(resolved) => return Some(resolved),
            Err(_) => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                () = give_up.cancelled() => return None,
            },
        }
    }
}

/// The outcome committed.
pub(crate) fn settled(shared: &Shared, job: &InHand, ended: Ended, skipped: Option<Skipped>, error: Option<String>) {
    shared.drop_job(job.token);
    shared.breakers.heard(job, ended, skipped, error.as_deref());
    shared.emit(job.settled(ended, skipped, error));
    hooks::start(shared, job, ended);
}

/// The lease was lost and the result dropped.
pub(crate) fn lost(shared: &Shared, job: &InHand) {
    shared.drop_job(job.token);
    tracing::info!(
        job = job.token.id,
        kind = job.names.kind,
        "lease lost; result of attempt {} dropped",
        job.ending.attempt
    );
    shared.emit(job.lost());
}
