//! Writes settlements that have no transaction of their own, gathered into few commits.
//!
//! A batch that fails is sent again until the database answers. A batch that may have committed without our hearing of
//! it is recognised by its tokens: what did not come back on the second try is looked up, not guessed.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::hand::{InHand, Shared};
use crate::{
    event::{Event, Skipped},
    fault::point,
    state::Ended,
    store::{Resolved, Settlement, Store},
};

/// A batch waits this long for company, and no longer than this many.
const GATHER: Duration = Duration::from_millis(5);
const BATCH_MAX: usize = 200;
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
    while let Some(first) = rx.recv().await {
        let mut batch = vec![first];
        let gathered = tokio::time::sleep(GATHER);
        tokio::pin!(gathered);
        while batch.len() < BATCH_MAX {
            tokio::select! {
                biased;
                more = rx.recv() => match more {
                    Some(more) => batch.push(more),
                    None => break,
                },
                () = &mut gathered => break,
            }
        }
        write(&shared, batch, &give_up).await;
    }
}

async fn write(shared: &Arc<Shared>, batch: Vec<ToSettle>, give_up: &CancellationToken) {
    let settlements: Vec<Settlement> = batch.iter().map(|s| s.settlement.clone()).collect();
    let mut wait = Duration::from_millis(50);
    let mut sent_before = false;
    let mut refused = 0;
    point!("before-batch");
    let applied = loop {
        match shared.store.settle(&settlements).await {
            Ok(applied) => break applied,
            Err(error) => {
                tracing::warn!(jobs = batch.len(), %error, "settling failed; trying again");
                sent_before = true;
                refused += u32::from(error.code().is_some());
            }
        }
        if refused >= REFUSED_MAX && batch.len() > 1 {
            // One of them may be what the database refuses; from here on each stands for itself.
            return apart(shared, batch, give_up);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = give_up.cancelled() => return,
        }
        wait = (wait * 2).min(Duration::from_secs(1));
    };
    point!("after-batch");
    for (entry, applied) in batch.into_iter().zip(applied) {
        let applied = applied || (sent_before && committed_earlier(&*shared.store, &entry.settlement, give_up).await);
        report(shared, &entry, applied);
    }
}

/// Writes each entry of a batch on its own, beside each other, so that one that fails holds up no other.
fn apart(shared: &Arc<Shared>, batch: Vec<ToSettle>, give_up: &CancellationToken) {
    for entry in batch {
        let (shared, give_up) = (shared.clone(), give_up.clone());
        tokio::spawn(async move {
            let one: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(write(&shared, vec![entry], &give_up));
            one.await;
        });
    }
}

/// Whether the first try of a batch that was sent again had committed after all.
pub(crate) async fn committed_earlier(store: &dyn Store, sent: &Settlement, give_up: &CancellationToken) -> bool {
    loop {
        match store.resolve(sent.token).await {
            Ok(Resolved::Ended(ended)) => return ended == sent.ended,
            Ok(Resolved::StillLeased | Resolved::Lost) => return false,
            Err(_) => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                () = give_up.cancelled() => return false,
            },
        }
    }
}

fn report(shared: &Shared, entry: &ToSettle, applied: bool) {
    let job = &entry.job;
    if applied {
        settled(
            shared,
            job,
            entry.settlement.ended,
            entry.skipped,
            entry.settlement.error.clone(),
        );
    } else {
        lost(shared, job);
    }
}

/// The outcome committed.
pub(crate) fn settled(shared: &Shared, job: &InHand, ended: Ended, skipped: Option<Skipped>, error: Option<String>) {
    shared.drop_job(job.token);
    shared.emit(Event::Settled {
        id: job.token.id,
        kind: job.kind.clone(),
        attempt: job.ending.attempt,
        ended,
        skipped,
        took: job.took(),
        error,
    });
}

/// The lease was lost and the result dropped.
pub(crate) fn lost(shared: &Shared, job: &InHand) {
    shared.drop_job(job.token);
    tracing::info!(
        job = job.token.id,
        kind = job.kind,
        "lease lost; result of attempt {} dropped",
        job.ending.attempt
    );
    shared.emit(Event::LeaseLost {
        id: job.token.id,
        kind: job.kind.clone(),
        attempt: job.ending.attempt,
    });
}
