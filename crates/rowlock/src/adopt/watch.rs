//! Renewal and recovery of the claims on a table, on the thread of the watch.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{hand::RowInHand, rows::RowShared};
use crate::{
    attempt::hand::Cut,
    error::Result,
    event::Event,
    job::{Job, number},
    lease::WorkerId,
    store::postgres::{
        PgStore,
        adopt::{RECOVER_MAX, RowToken, Stale, refused},
    },
    table::RetiredRow,
};

/// How often it is checked whether claims on locked rows must be renewed.
const LOCKED_EVERY: Duration = Duration::from_millis(50);
/// The shortest and the longest time between two looks of a worker for stale claims.
const RECOVER_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The longest time that a renewal waits for another transaction's lock before it is sent again.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) async fn watch_rows(shared: &RowShared, beats: &PgStore, rest: &PgStore) {
    tokio::select! {
        () = renew_always(shared, beats) => {}
        () = renew_locked(shared, beats) => {}
        () = recover_always(shared, rest) => {}
    }
}

/// One statement renews every claim that is older than a third of the lease. Claims that end sooner are never renewed.
async fn renew_always(shared: &RowShared, store: &PgStore) {
    let every = shared.timing.lease / 3;
    let pause = (every / 5).min(Duration::from_millis(500));
    loop {
        tokio::time::sleep(pause).await;
        let mut rows = shared.in_hand();
        // A handler that was cut off but does not end must not hold its row for ever.
        rows.retain(|row| row.needs_renewal(every));
        if rows.is_empty() {
            continue;
        }
        if let Err(error) = renew(shared, store, &rows).await {
            tracing::warn!("could not renew claims, retrying: {}", error.cause());
        }
    }
}

async fn renew(shared: &RowShared, store: &PgStore, rows: &[Arc<RowInHand>]) -> Result<()> {
    let tokens: Vec<RowToken> = rows.iter().map(|row| row.token.clone()).collect();
    let sent = Instant::now();
    match store.beat_rows(&shared.table, &tokens).await {
        Ok(held) => {
            let held: HashMap<_, _> = held.into_iter().collect();
            for row in rows {
                match held.get(&row.token.token) {
                    // A locked row is held, and is renewed again after the next pause.
                    Some(written) => row.renew(sent, *written),
                    None => row.hand.session().stop(Cut::DeclaredDead),
                }
            }
            Ok(())
        }
        Err(error) if refused(&error) => {
            // One by one, so that the rows that the table refuses do not fail the others.
            match rows {
                [row] => shared.refused.warn_once(&shared.table.queue, &row.token.id, &error),
                _ => {
                    for row in rows {
                        Box::pin(renew(shared, store, std::slice::from_ref(row))).await?;
                    }
                }
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A claim that could not be renewed for half the lease, because its row is locked, waits for the lock in a separate
/// statement. Recovery skips locked rows, so the renewal comes first when the lock ends.
async fn renew_locked(shared: &RowShared, store: &PgStore) {
    let lease = shared.timing.lease;
    let wait = (lease / 6).min(LOCK_WAIT_MAX);
    let locked = |row: &Arc<RowInHand>| row.needs_renewal(lease / 2);
    loop {
        let mut rows = shared.in_hand();
        rows.retain(locked);
        // While there is a lock to wait for, a waiting renewal is almost always under way.
        let pause = if rows.is_empty() {
            LOCKED_EVERY
        } else {
            LOCKED_EVERY / 10
        };
        tokio::time::sleep(pause).await;
        // Two at a time, to use few connections. None of them holds one lock while it waits for another.
        let every_second = |first: usize| {
            let rows = &rows;
            async move {
                for row in rows.iter().skip(first).step_by(2).filter(|row| locked(row)) {
                    let sent = Instant::now();
                    match store.beat_row_in_turn(&shared.table, &row.token, wait).await {
                        Ok(true) => row.renew(sent, true),
                        // The next heartbeat shows whether the claim is lost.
                        Ok(false) => {}
                        Err(error) => {
                            tracing::debug!("could not renew the claim of a locked row, retrying: {}", error.cause());
                            tokio::time::sleep(wait).await;
                        }
                    }
                }
            }
        };
        tokio::join!(every_second(0), every_second(1));
    }
}

/// Every worker recovers, each at its own times. If a round is interrupted, the next round of any worker finishes it.
async fn recover_always(shared: &RowShared, store: &PgStore) {
    let every = (shared.timing.lease / 4).clamp(RECOVER_EVERY.0, RECOVER_EVERY.1);
    let mut more = false;
    loop {
        if !more {
            tokio::time::sleep(every.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        }
        let without = shared.refused.left_out();
        let stale = Stale {
            lease: shared.timing.lease,
            backoff: shared.backoff,
            without: &without,
        };
        let (recovered, refused) = match store.recover_rows(&shared.table, stale).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::warn!("could not look for stale claims, retrying: {}", error.cause());
                more = false;
                continue;
            }
        };
        more = recovered.len() + refused.len() == RECOVER_MAX as usize;
        shared.refused.leave_out(&shared.table.queue, refused);
        if !recovered.is_empty() {
            tracing::info!(table = %shared.table.queue, rows = recovered.len(), "ended the claims of lost workers");
        }
        for row in recovered {
            shared.emit(Event::Expired {
                id: row.id.parse().unwrap_or_else(|_| number(&row.id).into()),
                queue: shared.table.queue.to_string(),
                kind: RetiredRow::KIND.to_owned(),
                worker: WorkerId(0),
                silent: row.silent,
                retired: row.retired,
            });
        }
    }
}
