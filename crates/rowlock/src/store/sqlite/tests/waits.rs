//! Waiting jobs: limits by the clock, and what pruning keeps.

use super::*;
use crate::{job::Wait, store::Sweep};

fn waiting(name: &str, limit: Option<Duration>) -> Draft {
    Draft {
        wait: Some(Wait {
            name: name.into(),
            limit,
        }),
        ..draft("1")
    }
}

#[tokio::test]
async fn a_limit_counts_by_the_clock_and_a_sweep_before_it_ends_nothing() {
    let rig = Rig::new().await;
    let minute = Duration::from_secs(60);
    let put = rig
        .store
        .enqueue(&[waiting("a", Some(minute)), waiting("b", None)])
        .await;
    let ids = ids_of(put.unwrap());
    rig.forward(minute - Duration::from_millis(1));
    assert!(
        rig.store
            .sweep(Sweep::Waits { names: true }, 100)
            .await
            .unwrap()
            .over
            .is_empty()
    );
    rig.forward(Duration::from_millis(1));
    let swept = rig.store.sweep(Sweep::Waits { names: true }, 100).await.unwrap();
    let over: Vec<_> = swept.over.iter().map(|o| (o.id, o.ended)).collect();
    assert_eq!(over, [(ids[0], Ended::Retired)]);
    assert_eq!(state_of(&rig.store, ids[0]).await, State::Case);
    assert_eq!(state_of(&rig.store, ids[1]).await, State::Waiting);
    assert!(
        rig.store
            .sweep(Sweep::Waits { names: true }, 100)
            .await
            .unwrap()
            .over
            .is_empty()
    );
}

#[tokio::test]
async fn the_body_of_a_waiting_job_outlives_the_history_of_what_came_before() {
    let rig = Rig::new().await;
    let second = Duration::from_secs(1);
    let ids = ids_of(rig.store.enqueue(&[waiting("a", Some(second))]).await.unwrap());
    rig.forward(second);
    assert_eq!(
        rig.store
            .sweep(Sweep::Waits { names: true }, 100)
            .await
            .unwrap()
            .over
            .len(),
        1
    );
    assert!(rig.store.reopen(ids[0], "tester").await.unwrap());
    assert_eq!(state_of(&rig.store, ids[0]).await, State::Waiting);
    rig.forward(Duration::from_secs(86_400));
    rig.store.maintain(&kept(second)).await.unwrap();
    assert_eq!(
        rig.count("rowlock_outcome").await,
        0,
        "the end of its first wait is history"
    );
    assert_eq!(state_of(&rig.store, ids[0]).await, State::Waiting);
}

#[tokio::test]
async fn a_sweep_with_nothing_to_do_needs_no_turn_to_write() {
    let rig = Rig::new().await;
    rig.store.enqueue(&[waiting("a", None)]).await.unwrap();
    let token = Token {
        id: 1,
        epoch: 1,
        worker: WorkerId(1),
    };
    let held = sqlx::Sqlite::begin(&rig.store, handler(token, Timing::of_lease(LEASE)))
        .await
        .unwrap();
    let sweep = tokio::time::timeout(
        Duration::from_secs(5),
        rig.store.sweep(Sweep::Waits { names: true }, 100),
    )
    .await;
    assert!(
        sweep.is_ok_and(|swept| swept.is_ok()),
        "it waited for the handler's transaction"
    );
    drop(held);
}
