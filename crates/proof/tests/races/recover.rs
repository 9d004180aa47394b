//! Beats, deaths and recovery against claims that are still in flight.

use crate::steps::{
    beat, claim, enqueue, expire, forget_dead, lock_dead, mark_dead, own_leases, register, session::Bed,
};

const FAR_AHEAD_S: i64 = 60;

/// Both halves of forgetting, as one transaction; which were locked, and how many of them still hold something.
async fn forget(bed: &mut Bed) -> (Vec<i64>, i64) {
    let mut session = bed.session().await;
    session.begin().await;
    let dead = lock_dead(&mut session.pg).await;
    let holding = forget_dead(&mut session.pg, &dead).await;
    session.commit().await;
    (dead, holding)
}

async fn a_claim_that_commits_after_its_worker_was_declared_dead_falls_to_the_next_round(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 2, 3).await;
    register(&mut bed.eye, 1).await;
    let mut claimer = bed.session().await;
    claimer.begin().await;
    assert_eq!(claim(&mut claimer.pg, 1, 10).await.unwrap().len(), 2);

    // Marking does not wait for the claim; expiring does not see it yet; forgetting must leave the worker's row.
    assert_eq!(mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap(), [1]);
    assert_eq!(expire(&mut bed.eye).await, [0i64; 0]);
    assert_eq!(
        forget(&mut bed).await,
        (vec![], 0),
        "the claim in flight keeps its worker's row"
    );
    claimer.commit().await;

    assert_eq!(forget(&mut bed).await, (vec![1], 1), "it holds leases, so it stays");
    assert_eq!(bed.count("select count(*) from rowlock.worker where dead").await, 1);
    assert_eq!(expire(&mut bed.eye).await, ids);
    assert_eq!(forget(&mut bed).await, (vec![1], 0));
    assert_eq!(bed.count("select count(*) from rowlock.worker").await, 0);
    assert_eq!(
        bed.count("select count(*) from rowlock.lease").await,
        0,
        "no lease outlives its worker's row"
    );
    for id in ids {
        assert_eq!(
            (bed.places(id).await, bed.outcomes(id).await),
            ([1, 0, 0], vec!["lost".to_owned()])
        );
    }
}

async fn a_claim_beside_a_mark_in_flight_does_not_wait_and_its_lease_is_recovered(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let mut marker = bed.session().await;
    marker.begin().await;
    assert_eq!(mark_dead(&mut marker.pg, FAR_AHEAD_S).await.unwrap(), [1]);

    assert_eq!(
        claim(&mut bed.eye, 1, 10).await.unwrap().len(),
        1,
        "not yet declared dead"
    );
    marker.commit().await;

    assert_eq!(claim(&mut bed.eye, 1, 10).await, None, "declared dead");
    assert_eq!(expire(&mut bed.eye).await, ids);
    assert_eq!(forget(&mut bed).await, (vec![1], 0));
    assert_eq!(claim(&mut bed.eye, 1, 10).await, None, "forgotten");
}

async fn a_dead_worker_being_forgotten_cannot_claim_meanwhile(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap();
    let mut forgetting = bed.session().await;
    forgetting.begin().await;
    assert_eq!(lock_dead(&mut forgetting.pg).await, [1]);

    assert_eq!(claim(&mut bed.eye, 1, 10).await, None);
    assert_eq!(forget_dead(&mut forgetting.pg, &[1]).await, 0);
    forgetting.commit().await;
    assert_eq!(bed.count("select count(*) from rowlock.lease").await, 0);
}

async fn two_workers_forget_the_dead_without_waiting_for_each_other(mut bed: Bed) {
    register(&mut bed.eye, 1).await;
    mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap();
    let mut first = bed.session().await;
    first.begin().await;
    assert_eq!(lock_dead(&mut first.pg).await, [1]);
    assert_eq!(forget(&mut bed).await, (vec![], 0));
    assert_eq!(forget_dead(&mut first.pg, &[1]).await, 0);
    first.commit().await;
}

async fn two_expiries_at_once_end_each_lease_once(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 4, 3).await;
    register(&mut bed.eye, 1).await;
    claim(&mut bed.eye, 1, 10).await.unwrap();
    mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap();
    let mut first = bed.session().await;
    first.begin().await;
    assert_eq!(expire(&mut first.pg).await, ids);
    assert_eq!(expire(&mut bed.eye).await, [0i64; 0]);
    first.commit().await;
    assert_eq!(
        bed.count("select count(*) from rowlock.outcome where outcome = 'lost'")
            .await,
        4
    );
    assert_eq!(
        bed.count("select count(*) from rowlock.ready where alone and attempt = 1")
            .await,
        4
    );
}

async fn own_leases_waits_for_a_claim_in_flight_and_sees_what_it_took(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    register(&mut bed.eye, 2).await;
    let mut claimer = bed.session().await;
    claimer.begin().await;
    assert_eq!(claim(&mut claimer.pg, 1, 10).await.unwrap().len(), 1);

    let mut other = bed.session().await;
    other.begin().await;
    assert_eq!(
        own_leases(&mut other.pg, 2).await,
        [0i64; 0],
        "another worker's claim is nothing to wait for"
    );
    other.commit().await;
    let mut asking = bed.session().await;
    asking.begin().await;
    let pid = asking.pid;
    let asking = asking.start(async |pg| own_leases(pg, 1).await);
    bed.blocked(pid).await;
    assert!(
        beat(&mut bed.eye, 1).await.unwrap(),
        "a beat goes on while the question waits"
    );
    claimer.commit().await;

    let (mut session, own) = asking.await.unwrap();
    assert_eq!(own, ids);
    session.commit().await;
}

async fn a_claim_that_rolls_back_is_no_lease_of_its_worker(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let mut claimer = bed.session().await;
    claimer.begin().await;
    claim(&mut claimer.pg, 1, 10).await.unwrap();
    let mut asking = bed.session().await;
    asking.begin().await;
    let pid = asking.pid;
    let asking = asking.start(async |pg| own_leases(pg, 1).await);
    bed.blocked(pid).await;
    claimer.rollback().await;
    assert_eq!(asking.await.unwrap().1, [0i64; 0]);
}

async fn a_beat_behind_a_mark_hears_that_it_is_dead(mut bed: Bed) {
    for (ends_by, alive) in [("commit", false), ("rollback", true)] {
        sqlx::query("delete from rowlock.worker")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        register(&mut bed.eye, 1).await;
        let mut marker = bed.session().await;
        marker.begin().await;
        assert_eq!(mark_dead(&mut marker.pg, FAR_AHEAD_S).await.unwrap(), [1]);

        let beating = bed.session().await;
        let pid = beating.pid;
        let beating = beating.start(async |pg| beat(pg, 1).await.unwrap());
        bed.blocked(pid).await;
        marker.run(ends_by).await;

        assert_eq!(beating.await.unwrap().1, alive, "the mark ended by {ends_by}");
        assert_eq!(beat(&mut bed.eye, 1).await.unwrap(), alive);
    }
}

/// A heartbeat of a client that froze before its commit must not keep other workers from being marked dead.
async fn a_mark_beside_a_beat_passes_it_by(mut bed: Bed) {
    for (ends_by, marked) in [("commit", vec![]), ("rollback", vec![1])] {
        sqlx::query("delete from rowlock.worker")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        register(&mut bed.eye, 1).await;
        register(&mut bed.eye, 2).await;
        sqlx::query("update rowlock.worker set beat = beat - interval '1 hour'")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        let mut beating = bed.session().await;
        beating.begin().await;
        assert!(beat(&mut beating.pg, 1).await.unwrap());

        assert_eq!(mark_dead(&mut bed.eye, 0).await.unwrap(), [2], "the one beside it");
        beating.run(ends_by).await;

        assert_eq!(
            mark_dead(&mut bed.eye, 0).await.unwrap(),
            marked,
            "the beat ended by {ends_by}"
        );
        assert_eq!(beat(&mut bed.eye, 1).await.unwrap(), marked.is_empty());
    }
}

races!(
    a_claim_that_commits_after_its_worker_was_declared_dead_falls_to_the_next_round,
    a_claim_beside_a_mark_in_flight_does_not_wait_and_its_lease_is_recovered,
    a_dead_worker_being_forgotten_cannot_claim_meanwhile,
    two_workers_forget_the_dead_without_waiting_for_each_other,
    two_expiries_at_once_end_each_lease_once,
    own_leases_waits_for_a_claim_in_flight_and_sees_what_it_took,
    a_claim_that_rolls_back_is_no_lease_of_its_worker,
    a_beat_behind_a_mark_hears_that_it_is_dead,
    a_mark_beside_a_beat_passes_it_by,
);
