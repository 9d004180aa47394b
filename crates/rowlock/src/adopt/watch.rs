//! Beats, the cut-off, time limits and recovery of an adopted table, on a thread and runtime of their own: a handler that
//! blocks its executor cannot stop them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{attempt, hand::RowInHand, run::Shared};
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
    worker::cut_off,
};

/// How often time limits and the ends of claims are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often what people have paused, and where the breakers stand, is looked at; it counts within a second.
const CHANGES_EVERY: Duration = Duration::from_millis(400);
/// A worker looks for stale claims at least as often as this, and at most.
const RECOVER_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// How long a renewal waits for somebody's lock at most, before it is sent again.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Runs the watch until the worker is gone; the thread ends by itself then.
pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watching = move || {
        runtime.block_on(async {
            let (beats, rest) = (shared.store.separate(), shared.store.separate());
            tokio::select! {
                () = beat(&shared, &beats) => {}
                () = stand_in_line(&shared, &beats) => {}
                () = look(&shared, &rest) => {}
                () = recover(&shared, &rest) => {}
                () = heed(&shared, &rest) => {}
                () = shared.gone.cancelled() => {}
            }
        });
        // A connection still trying to close must not hold the process.
        runtime.shutdown_background();
    };
    std::thread::Builder::new()
        .name("rowlock-rows".into())
        .spawn(watching)?;
    Ok(())
}

/// One statement renews every claim that is a third of the lease old; those that are over sooner are never written for it.
async fn beat(shared: &Shared, store: &PgStore) {
    let every = shared.timing.lease / 3;
    let pause = (every / 5).min(Duration::from_millis(500));
    loop {
        tokio::time::sleep(pause).await;
        let mut rows = shared.in_hand();
        // One that was cut is not renewed: a handler that does not let go must not hold its row for ever.
        rows.retain(|row| row.written().elapsed() >= every && !row.hand.cut.is_cancelled());
        if rows.is_empty() {
            continue;
        }
        if let Err(error) = renew(shared, store, &rows).await {
            tracing::warn!("could not renew claims, retrying: {}", error.cause());
        }
    }
}

async fn renew(shared: &Shared, store: &PgStore, rows: &[Arc<RowInHand>]) -> Result<()> {
    let tokens: Vec<RowToken> = rows.iter().map(|row| row.token.clone()).collect();
    let sent = Instant::now();
    match store.beat_rows(&shared.table, &tokens).await {
        Ok(held) => {
            let held: HashMap<_, _> = held.into_iter().collect();
            for row in rows {
                match held.get(&row.token.token) {
                    // One that somebody has locked is held, and asked for again after the next pause.
                    Some(written) => row.renew(sent, *written),
                    None => drop(row.end(Cut::DeclaredDead)),
                }
            }
            Ok(())
        }
        Err(error) if refused(&error) => {
            // One by one, so that those which the table refuses do not take the others with them.
            match rows {
                [row] => shared.refused.tell(&shared.table.queue, &row.token.id, &error),
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

/// A claim that could not be renewed for half the lease, because somebody has its row locked, waits for that in a statement
/// of its own: recovery steps over locked rows, so the renewal is there first when the lock ends.
async fn stand_in_line(shared: &Shared, store: &PgStore) {
    let lease = shared.timing.lease;
    let wait = (lease / 6).min(LOCK_WAIT_MAX);
    let locked = |row: &Arc<RowInHand>| row.written().elapsed() >= lease / 2 && !row.hand.cut.is_cancelled();
    loop {
        let mut rows = shared.in_hand();
        rows.retain(locked);
        // Hardly ever out of line while there is something to wait for.
        let pause = if rows.is_empty() { LOOK_EVERY } else { LOOK_EVERY / 10 };
        tokio::time::sleep(pause).await;
        // Two at a time, so that they take few connections; none holds one lock while it waits for another.
        let line = |first: usize| {
            let rows = &rows;
            async move {
                for row in rows.iter().skip(first).step_by(2).filter(|row| locked(row)) {
                    let sent = Instant::now();
                    match store.beat_row_in_turn(&shared.table, &row.token, wait).await {
                        Ok(true) => row.renew(sent, true),
                        // Whether it is lost, the next beat says.
                        Ok(false) => {}
                        Err(error) => {
                            tracing::debug!("could not renew the claim of a locked row, retrying: {}", error.cause());
                            tokio::time::sleep(wait).await;
                        }
                    }
                }
            }
        };
        tokio::join!(line(0), line(1));
    }
}

/// Stops handlers whose time is over, and those whose claim others may soon take.
async fn look(shared: &Arc<Shared>, store: &PgStore) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let mut ending = false;
        for row in shared.in_hand() {
            if row.renewed().elapsed() >= cut_off(shared.timing.lease) {
                ending |= row.end(Cut::LeaseEnding);
            }
            if let Some(problem) = row.hand.overdue(Instant::now(), None)
                && row.hand.condemn()
            {
                tokio::spawn(attempt::end_hung(shared.clone(), store.clone(), row, problem));
            }
        }
        if ending {
            shared.emit(Event::CutOff);
        }
    }
}

/// Every worker recovers, each at its own times; a round that dies half-way is finished by the next one, anywhere.
async fn recover(shared: &Shared, store: &PgStore) {
    let every = (shared.timing.lease / 4).clamp(RECOVER_EVERY.0, RECOVER_EVERY.1);
    let mut more = false;
    loop {
        if !more {
            tokio::time::sleep(every.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        }
        let without = shared.refused.left_out();
        let stale = Stale {
            lease: shared.timing.lease,
            backoff: shared.settings.backoff,
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
                id: row.id.parse().unwrap_or_else(|_| number(&row.id)),
                queue: shared.table.queue.to_string(),
                kind: RetiredRow::KIND.to_owned(),
                worker: WorkerId(0),
                silent: row.silent,
                retired: row.retired,
            });
        }
    }
}

async fn heed(shared: &Shared, store: &PgStore) {
    loop {
        tokio::time::sleep(CHANGES_EVERY).await;
        match shared.look(store).await {
            Ok(true) => shared.woken.notify_one(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(
                    "could not read pauses and breakers, using the last known state: {}",
                    error.cause()
                )
            }
        }
    }
}
