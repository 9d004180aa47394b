//! The claiming side of a worker on a table: claims whenever there are free slots, and hands rows out.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{
    hand::RowInHand,
    rows::{RowCrew, RowShared, WaitingRow},
};
use crate::{
    error::Result,
    event::Event,
    job::Job,
    store::postgres::adopt::{Asked, ClaimedRow, Probed},
    table::RetiredRow,
    worker::{breaker::Breakers, shared::Claims},
};

/// The wait after a claim that found fewer rows than it asked for; it doubles up to the poll interval.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The wait after a claim failed.
const WAIT_ERROR: Duration = Duration::from_millis(500);

/// Claims until the worker stops. An idle worker claims again after `poll` at most.
pub(super) async fn run(crew: Arc<RowCrew>, poll: Duration, tasks: TaskTracker) {
    let (shared, line) = (&crew.shared, &crew.line);
    let mut wait = WAIT_MIN;
    while !shared.stopping.is_cancelled() {
        let room = line.queue.room();
        if room == 0 {
            pause(shared, &shared.freed, poll).await;
            continue;
        }
        let found = match claim(&crew, room).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(table = %shared.table.queue, "could not claim rows, retrying: {}", error.cause());
                pause(shared, &shared.woken, WAIT_ERROR).await;
                continue;
            }
        };
        let got = found.len();
        if got > 0 {
            let (queue, jobs) = (shared.table.queue.clone(), got);
            shared.emit(Event::Claimed { queue, jobs });
        }
        let mut sessions = Vec::with_capacity(got);
        for waiting in found {
            sessions.push(waiting.row.hand.session().clone());
            crew.push(waiting);
        }
        for session in sessions {
            let crew = crew.clone();
            tasks.spawn(async move { crew.run_next(session).await });
        }
        wait = match got {
            0 => (wait * 2).min(poll),
            _ => WAIT_MIN,
        };
        if got < room {
            pause(shared, &shared.woken, wait.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        }
    }
}

async fn pause(shared: &RowShared, reason: &Notify, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = reason.notified() => {}
        () = shared.stopping.cancelled() => {}
    }
}

/// Claims as many rows as allowed: any rows, only probes of a breaker, or none.
async fn claim(crew: &RowCrew, room: usize) -> Result<Vec<WaitingRow>> {
    let shared = &crew.shared;
    if shared.pauses.now().stop(crew.line.queue.queue_no, RetiredRow::KIND) {
        return Ok(Vec::new());
    }
    let (store, table) = (shared.store(), &*shared.table);
    let without = shared.refused.left_out();
    let asked = Asked {
        most: i32::try_from(room).unwrap_or(i32::MAX),
        by: &shared.settings.name,
        without: &without,
    };
    let sent = Instant::now();
    let Breakers { known, names, .. } = &shared.breakers;
    if known.admit(names) {
        let (rows, refused) = store.claim_rows(table, asked, names).await?;
        shared.refused.leave_out(&table.queue, refused);
        return Ok(in_hand(crew, rows, sent, &[]));
    }
    let Some(to_try) = known.to_try(names) else {
        return Ok(Vec::new());
    };
    let closed: Vec<String> = names.iter().filter(|name| !to_try.contains(name)).cloned().collect();
    let probed = store.probe_rows(table, asked, (&to_try, &closed)).await?;
    // This may have made the breaker half-open. The claimed rows are in hand, whether or not the breaker can be read.
    if let Err(error) = shared.breakers.refresh(store, &shared.settings.name).await {
        tracing::debug!("could not read breakers, using the last known state: {}", error.cause());
    }
    let Probed::Rows { rows, tried, refused } = probed else {
        return Ok(Vec::new());
    };
    shared.refused.leave_out(&table.queue, refused);
    Ok(in_hand(crew, rows, sent, &tried))
}

/// Rows just claimed: as probes of these breaker versions, or as ordinary rows.
fn in_hand(crew: &RowCrew, rows: Vec<ClaimedRow>, sent: Instant, tried: &[(String, i64)]) -> Vec<WaitingRow> {
    let shared = &crew.shared;
    let in_hand = |claimed: ClaimedRow| {
        let bond = shared.breakers.bond(&shared.breakers.names, tried);
        let names = crew.line.queue.names(RetiredRow::KIND);
        let row = RowInHand::new(shared, &claimed, names, (sent, shared.timing.lease), bond);
        WaitingRow { claimed, row }
    };
    rows.into_iter().map(in_hand).collect()
}
