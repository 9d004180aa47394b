//! Breakers: a claim and a concurrent opening of the breaker, in both orders; and two that want the last probe.

use sqlx::{PgConnection, Row};

use crate::steps::{
    KIND, PRIORITY, QUEUE, enqueue, register,
    session::{Bed, Session},
    sql,
};

type Time = Option<jiff_sqlx::Timestamp>;

async fn declare(pg: &mut PgConnection) {
    let declare = sqlx::query(sql!("breaker/declare"))
        .bind("till")
        .bind(3)
        .bind(1_000_000i64);
    let declare = declare.bind(1_000_000i64).bind(1).bind(None as Time).bind("step");
    declare.execute(pg).await.unwrap();
}

/// The ids that a claim bound to the breaker took.
async fn claim(pg: &mut PgConnection, worker: i64) -> Vec<i64> {
    let rows = sqlx::query(sql!("claim/take_bound"))
        .bind(worker)
        .bind(vec![1i32])
        .bind(vec![10i32])
        .bind(vec![QUEUE])
        .bind(vec![KIND])
        .bind(vec![PRIORITY])
        .bind(vec![jiff_sqlx::Timestamp::from(jiff::Timestamp::UNIX_EPOCH)])
        .bind(vec![0i64])
        .bind(None as Time)
        .bind(false)
        .bind(vec![1i32])
        .bind(vec![KIND])
        .bind(vec!["till"])
        .fetch_all(pg)
        .await
        .unwrap();
    assert!(!rows.is_empty(), "the worker is dead");
    rows.iter().filter_map(|row| row.get::<Option<i64>, _>("id")).collect()
}

/// Locks the row; the version it is at.
async fn lock(pg: &mut PgConnection) -> i64 {
    let lock = sqlx::query(sql!("breaker/lock")).bind("till").bind(None as Time);
    lock.fetch_one(pg).await.unwrap().get("version")
}

/// Moves it from this version; `false` when it is at another.
async fn set(pg: &mut PgConnection, version: i64, state: &str) -> bool {
    let set = sqlx::query(sql!("breaker/set"))
        .bind("till")
        .bind(version)
        .bind(state)
        .bind(false)
        .bind(0)
        .bind(1)
        .bind(None as Time)
        .bind(version + 1)
        .bind(jiff_sqlx::Timestamp::from(jiff::Timestamp::now()))
        .bind("step")
        .bind(None::<&str>);
    set.execute(pg).await.unwrap().rows_affected() == 1
}

async fn ready(bed: &mut Bed) -> Vec<i64> {
    declare(&mut bed.eye).await;
    register(&mut bed.eye, 1).await;
    enqueue(&mut bed.eye, 2, 3).await
}

/// Opens it and does not commit; a claim must wait for how that ends. What the claim took.
async fn claimed_while_it_opens(bed: &mut Bed, end: impl AsyncFnOnce(&mut Session)) -> Vec<i64> {
    let mut opening = bed.session().await;
    opening.begin().await;
    let version = lock(&mut opening.pg).await;
    assert!(set(&mut opening.pg, version, "open").await);
    let claiming = bed.session().await;
    let pid = claiming.pid;
    let claiming = claiming.start(async move |pg| claim(pg, 1).await);
    bed.blocked(pid).await;
    end(&mut opening).await;
    claiming.await.unwrap().1
}

async fn a_claim_that_meets_an_opening_that_commits_takes_nothing(mut bed: Bed) {
    let ids = ready(&mut bed).await;
    assert_eq!(claimed_while_it_opens(&mut bed, Session::commit).await, [0i64; 0]);
    let left: i64 = sqlx::query_scalar("select count(*) from rowlock.ready")
        .fetch_one(&mut bed.eye)
        .await
        .unwrap();
    assert_eq!(left, ids.len() as i64);
}

async fn a_claim_that_meets_an_opening_that_rolls_back_takes_its_jobs(mut bed: Bed) {
    let mut ids = ready(&mut bed).await;
    let mut claimed = claimed_while_it_opens(&mut bed, Session::rollback).await;
    ids.sort_unstable();
    claimed.sort_unstable();
    assert_eq!(claimed, ids);
}

async fn who_opens_it_waits_for_the_claims_that_saw_it_closed(mut bed: Bed) {
    let ids = ready(&mut bed).await;
    let mut claiming = bed.session().await;
    claiming.begin().await;
    assert_eq!(claim(&mut claiming.pg, 1).await.len(), ids.len());
    let opening = bed.session().await;
    let pid = opening.pid;
    let opening = opening.start(async |pg| {
        sqlx::raw_sql("begin").execute(&mut *pg).await.unwrap();
        let version = lock(pg).await;
        // By now the claim has committed, and everybody can see it.
        let seen: i64 = sqlx::query_scalar("select count(*) from rowlock.lease")
            .fetch_one(&mut *pg)
            .await
            .unwrap();
        assert!(set(pg, version, "open").await);
        sqlx::raw_sql("commit").execute(pg).await.unwrap();
        seen
    });
    bed.blocked(pid).await;
    claiming.commit().await;
    assert_eq!(opening.await.unwrap().1, ids.len() as i64);
    enqueue(&mut bed.eye, 1, 3).await;
    assert_eq!(claim(&mut bed.eye, 1).await, [0i64; 0]);
}

async fn claims_do_not_wait_for_each_other(mut bed: Bed) {
    ready(&mut bed).await;
    let mut first = bed.session().await;
    first.begin().await;
    assert_eq!(claim(&mut first.pg, 1).await.len(), 2);
    enqueue(&mut bed.eye, 1, 3).await;
    assert_eq!(claim(&mut bed.eye, 1).await.len(), 1, "the row is shared");
    first.commit().await;
}

async fn a_move_from_a_version_that_is_over_moves_nothing(mut bed: Bed) {
    ready(&mut bed).await;
    let version = lock(&mut bed.eye).await;
    assert!(set(&mut bed.eye, version, "open").await);
    assert!(!set(&mut bed.eye, version, "closed").await);
    assert_eq!(lock(&mut bed.eye).await, version + 1);
}

async fn two_that_want_the_last_probe_take_turns_and_the_second_sees_it_taken(mut bed: Bed) {
    let ids = ready(&mut bed).await;
    let probing = async |pg: &mut PgConnection| -> i32 {
        sqlx::query(sql!("breaker/probe_sweep"))
            .bind("till")
            .execute(&mut *pg)
            .await
            .unwrap();
        let count = sqlx::query_scalar(sql!("breaker/probe_count")).bind("till");
        count.fetch_one(pg).await.unwrap()
    };
    let mut first = bed.session().await;
    first.begin().await;
    lock(&mut first.pg).await;
    assert_eq!(probing(&mut first.pg).await, 0);
    let second = bed.session().await;
    let pid = second.pid;
    let second = second.start(async move |pg| {
        sqlx::raw_sql("begin").execute(&mut *pg).await.unwrap();
        lock(pg).await;
        let seen = probing(pg).await;
        sqlx::raw_sql("commit").execute(pg).await.unwrap();
        seen
    });
    bed.blocked(pid).await;
    assert_eq!(claim(&mut first.pg, 1).await.len(), ids.len());
    let put = sqlx::query(sql!("breaker/probe_put"))
        .bind("till")
        .bind(vec![ids[0]])
        .bind(vec![1i64])
        .bind(1i64);
    put.execute(&mut first.pg).await.unwrap();
    first.commit().await;
    assert_eq!(second.await.unwrap().1, 1);
    // Its place comes back with its lease, however that ends.
    sqlx::raw_sql("delete from rowlock.lease")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    assert_eq!(probing(&mut bed.eye).await, 0);
}

races!(
    a_claim_that_meets_an_opening_that_commits_takes_nothing,
    a_claim_that_meets_an_opening_that_rolls_back_takes_its_jobs,
    who_opens_it_waits_for_the_claims_that_saw_it_closed,
    claims_do_not_wait_for_each_other,
    a_move_from_a_version_that_is_over_moves_nothing,
    two_that_want_the_last_probe_take_turns_and_the_second_sees_it_taken,
);
