//! Rows that somebody else has locked while they are worked on: the claim is not lost to recovery when the lock ends.

use std::{sync::Arc, time::Duration};

use proof::bed::until;
use rowlock::{Ended, adopt, staged};
use tokio::sync::{Mutex, Notify};

use super::{
    bed::{age, beat, beat_in_turn, claim, fill, opened, recover, stand},
    worker::Snooze,
};
use crate::steps::session::Bed;

const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: [(i64, bool); 0] = [];

async fn a_renewal_in_line_is_there_before_recovery(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let mine = claim(&mut bed.eye, 1, &[]).await[0];
    age(&mut bed.eye, 61).await;
    let mut stranger = bed.session().await;
    stranger.begin().await;
    stranger.run("select from email_snoozes for update").await;
    assert_eq!(beat(&mut bed.eye, &[mine]).await, [(mine.token, false)]);
    let worker = bed.session().await;
    let pid = worker.pid;
    let renewing = worker.start(async move |pg| beat_in_turn(pg, mine).await);
    bed.blocked(pid).await;
    assert_eq!(recover(&mut bed.eye, 60).await, NOBODY, "it steps over the locked row");
    stranger.commit().await;
    assert!(renewing.await.unwrap().1);
    assert_eq!(recover(&mut bed.eye, 60).await, NOBODY);
}

async fn a_renewal_in_line_behind_the_rows_end_changes_nothing(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let mine = claim(&mut bed.eye, 1, &[]).await[0];
    let mut handler = bed.session().await;
    handler.begin().await;
    assert!(super::bed::finish(&mut handler.pg, mine).await);
    let worker = bed.session().await;
    let pid = worker.pid;
    let renewing = worker.start(async move |pg| beat_in_turn(pg, mine).await);
    bed.blocked(pid).await;
    handler.commit().await;
    assert!(!renewing.await.unwrap().1);
    assert!(!stand(&mut bed.eye, 1).await.claimed);
}

async fn a_worker_keeps_its_claim_when_a_strangers_lock_ends(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let go = Arc::new(Notify::new());
    let waits = |cx: adopt::Staged<Arc<Notify>>, _row: Snooze| async move {
        cx.state().notified().await;
        cx.done().ok()
    };
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted.worker().state(go.clone()).lease(Duration::from_secs(6));
    let worker = worker.poll(Duration::from_millis(20)).handle(staged(waits));
    let counters = worker.counters();
    let mut stranger = bed.session().await;
    let eye = Mutex::new(&mut bed.eye);
    let steps = async {
        until("the claim", PATIENCE, || async {
            (counters.claimed() == 1).then_some(())
        })
        .await;
        stranger.begin().await;
        // Once this is committed, the next recovery takes it.
        stranger
            .run("update email_snoozes set claimed_at = now() - interval '1 hour'")
            .await;
        until("the renewal to stand in line", PATIENCE, || async {
            let behind = "select exists (select from pg_stat_activity where $1 = any (pg_blocking_pids(pid)))";
            let behind = sqlx::query_scalar(behind).bind(stranger.pid);
            let behind: bool = behind.fetch_one(&mut **eye.lock().await).await.unwrap();
            behind.then_some(())
        })
        .await;
        stranger.commit().await;
        until("the claim to be renewed", PATIENCE, || async {
            let renewed =
                "select claimed_at > now() - interval '1 minute' from email_snoozes where claim_token is not null";
            let renewed = sqlx::query_scalar(renewed);
            let renewed: Option<bool> = renewed.fetch_optional(&mut **eye.lock().await).await.unwrap();
            // Without a token it was taken away.
            renewed.unwrap().then_some(())
        })
        .await;
        go.notify_one();
        let done = async || (counters.settled(Ended::Done) == 1).then_some(());
        until("the row to be done", PATIENCE, done).await;
    };
    worker.run_until(steps).await.unwrap();
    assert_eq!(
        (counters.claimed(), counters.expired(), counters.lease_lost()),
        (1, 0, 0)
    );
    assert_eq!(stand(&mut bed.eye, 1).await.attempts, 0);
}

on_postgresql!(
    a_renewal_in_line_is_there_before_recovery,
    a_renewal_in_line_behind_the_rows_end_changes_nothing,
    a_worker_keeps_its_claim_when_a_strangers_lock_ends,
);
