//! What rows have from the loop that they share with jobs: slots that turn over, and hooks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rowlock::{Ended, Fail, adopt, atomic};

use super::{
    bed::{Stand, fill, opened, stand},
    worker::{Snooze, runs_until, soon},
};
use crate::steps::session::Bed;

async fn a_row_that_gets_no_slot_in_time_is_given_back_to_other_workers(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let adopted = opened(&bed.rowlock).await;
    let waits = |cx: adopt::Ctx, _row: Snooze, tx: adopt::Tx| async move {
        cx.stopping().await;
        tx.done().ok()
    };
    let worker = adopted.worker().slots(1).lease(Duration::from_secs(2));
    let worker = worker.handle(soon(atomic(waits)));
    let counters = runs_until(worker, "the second row to be given back", |c| {
        c.settled(Ended::Released) == 1
    })
    .await;
    assert_eq!(
        (counters.claimed(), counters.settled(Ended::Done)),
        (2, 1),
        "nothing is claimed ahead while the slot does not turn over"
    );
    let Stand { claimed, attempts, .. } = stand(&mut bed.eye, 2).await;
    assert_eq!((claimed, attempts), (false, 0));
}

async fn a_hook_of_a_row_runs_after_its_commit_alone(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let handler = |cx: adopt::Ctx<Arc<Mutex<Vec<i64>>>>, row: Snooze, mut tx: adopt::Tx| async move {
        let (ran, id) = (Arc::clone(cx.state()), row.id);
        tx.after_commit(async move {
            ran.lock().unwrap().push(id);
            Ok::<(), Fail>(())
        });
        match id {
            1 => tx.done().ok(),
            _ => Err(Fail::retire("rolled back")),
        }
    };
    let worker = opened(&bed.rowlock).await.worker().state(ran.clone());
    runs_until(worker.handle(soon(atomic(handler))), "both to end", |c| {
        (c.settled(Ended::Done), c.settled(Ended::Retired)) == (1, 1)
    })
    .await;
    assert_eq!(*ran.lock().unwrap(), [1]);
}

on_postgresql!(
    a_row_that_gets_no_slot_in_time_is_given_back_to_other_workers,
    a_hook_of_a_row_runs_after_its_commit_alone,
);
