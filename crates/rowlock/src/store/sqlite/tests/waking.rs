use sqlx::Sqlite;

use super::*;
use crate::store::Wakes;

/// Far longer than any notification takes: a missing notification fails the test instead of hanging it.
async fn next(wakes: &mut Wakes) -> Option<i64> {
    tokio::time::timeout(Duration::from_secs(10), wakes.next())
        .await
        .expect("no wake")
        .unwrap()
}

#[tokio::test]
async fn an_enqueue_wakes_every_store_of_the_file_by_queue() {
    let rig = Rig::new().await;
    let mut wakes = rig.another().wakes().await.unwrap();
    rig.store.enqueue(&[numbered(1)]).await.unwrap();
    assert_eq!(next(&mut wakes).await, Some(queue_no("orders")));
}

#[tokio::test]
async fn a_commit_by_anybody_else_wakes_some_queue() {
    let rig = Rig::new().await;
    let mut wakes = rig.store.wakes().await.unwrap();
    let mut conn = rig.conn().await;
    Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(1)]).await.unwrap();
    assert_eq!(next(&mut wakes).await, None);
}

#[tokio::test]
async fn waiting_for_a_wake_can_be_given_up_at_any_point() {
    let rig = Rig::new().await;
    let mut wakes = rig.store.wakes().await.unwrap();
    for ms in 0..60 {
        let given_up = tokio::time::timeout(Duration::from_micros(ms * 700), wakes.next()).await;
        assert!(given_up.is_err(), "nothing happened, so nothing wakes");
    }
    let mut conn = rig.conn().await;
    Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(1)]).await.unwrap();
    assert_eq!(next(&mut wakes).await, None);
}

#[tokio::test]
async fn an_empty_claim_changes_nothing_that_would_wake_others() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    let mut wakes = rig.store.wakes().await.unwrap();
    assert!(claim(&rig.store, worker, 1).await.is_empty());
    assert!(rig.store.mark_dead().await.unwrap().dead.is_empty());
    assert!(rig.store.expire(10).await.unwrap().is_empty());
    rig.store.forget_dead().await.unwrap();
    rig.store.maintain(&kept(Duration::from_secs(1))).await.unwrap();
    rig.store.wake(&[42]);
    assert_eq!(next(&mut wakes).await, Some(42));
    let quiet = tokio::time::timeout(Duration::from_millis(100), wakes.next()).await;
    assert!(quiet.is_err(), "five looks found no change");
}
