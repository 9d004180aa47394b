//! Claims beside claims, and beside rows that somebody else keeps locked.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::steps::{APPLIED, claim, claim_from, done, enqueue, register, session::Bed};

/// Sessions in the disjointness race.
const SESSIONS: usize = 4;

async fn claims_in_open_transactions_are_disjoint_and_never_exceed_their_limit(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 50, 3).await;
    let mut sessions = Vec::new();
    for worker in 1..=SESSIONS as i64 {
        register(&mut bed.eye, worker).await;
        let mut session = bed.session().await;
        session.begin().await;
        sessions.push(session);
    }

    // Twice round, so that every claim but the first runs between the halves of the others' transactions.
    let mut taken: Vec<HashSet<i64>> = vec![HashSet::new(); SESSIONS];
    for places in [7, 5] {
        for (worker, session) in (1i64..).zip(&mut sessions) {
            let held = claim(&mut session.pg, worker, places).await.unwrap();
            assert_eq!(held.len(), places as usize, "there was enough for everyone");
            taken[worker as usize - 1].extend(held.iter().map(|h| h.id));
        }
    }
    assert_eq!(taken.iter().map(HashSet::len).sum::<usize>(), SESSIONS * 12);
    assert_eq!(
        taken.iter().flatten().collect::<HashSet<_>>().len(),
        SESSIONS * 12,
        "no job was taken twice"
    );

    // One gives its claim up, the others commit, latest first; what was given up is there for the next claim.
    sessions[1].rollback().await;
    for i in [3, 2, 0] {
        sessions[i].commit().await;
    }
    let rest = claim(&mut bed.eye, 1, 100).await.unwrap();
    let rest: HashSet<i64> = rest.iter().map(|h| h.id).collect();
    let committed: HashSet<i64> = [0, 2, 3]
        .iter()
        .flat_map(|i: &usize| taken[*i].iter().copied())
        .collect();
    assert!(rest.is_disjoint(&committed));
    assert_eq!(
        rest.union(&committed).copied().collect::<HashSet<_>>(),
        ids.into_iter().collect()
    );
    assert_eq!(bed.count("select count(*) from rowlock.lease").await, 50);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 0);
}

async fn claims_at_the_same_moment_are_disjoint(mut bed: Bed) {
    enqueue(&mut bed.eye, 400, 3).await;
    let mut running = Vec::new();
    for worker in 1..=SESSIONS as i64 {
        register(&mut bed.eye, worker).await;
        let session = bed.session().await;
        running.push(session.start(async move |pg| {
            let mut held = Vec::new();
            loop {
                let more = claim(pg, worker, 7).await.unwrap();
                assert!(more.len() <= 7, "{} of 7 asked for", more.len());
                if more.is_empty() {
                    return held;
                }
                held.extend(more);
            }
        }));
    }
    let mut all = Vec::new();
    for claimer in running {
        all.extend(claimer.await.unwrap().1.into_iter().map(|h| h.id));
    }
    assert_eq!(all.len(), 400);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 400);
}

async fn a_claim_goes_past_rows_that_a_frozen_transaction_keeps(mut bed: Bed) {
    let ids = enqueue(&mut bed.eye, 10, 3).await;
    register(&mut bed.eye, 1).await;
    let mut frozen = bed.session().await;
    frozen.begin().await;
    frozen
        .run("select from rowlock.ready order by id limit 4 for update")
        .await;

    let held = claim(&mut bed.eye, 1, 4).await.unwrap();

    assert_eq!(
        held.iter().map(|h| h.id).collect::<HashSet<_>>(),
        ids[4..8].iter().copied().collect()
    );
    frozen.rollback().await;
    let later = claim(&mut bed.eye, 1, 10).await.unwrap();
    assert_eq!(later.len(), 6, "what was kept is found once it is free");
}

async fn a_claim_whose_commit_comes_late_is_behind_the_cursor_and_found_from_the_beginning(mut bed: Bed) {
    register(&mut bed.eye, 1).await;
    let mut late = bed.session().await;
    late.begin().await;
    let behind = enqueue(&mut late.pg, 1, 3).await;
    enqueue(&mut bed.eye, 2, 3).await;
    let first = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    late.commit().await;

    let from_cursor = claim_from(&mut bed.eye, 1, 10, first.due_at, first.id)
        .await
        .unwrap()
        .unwrap();
    let from_start = claim_from(&mut bed.eye, 1, 10, Timestamp::UNIX_EPOCH, 0)
        .await
        .unwrap()
        .unwrap();

    assert!(from_cursor.iter().all(|h| h.id != behind[0]), "the cursor is past it");
    assert_eq!(from_start.iter().map(|h| h.id).collect::<Vec<_>>(), behind);
}

async fn a_claim_does_not_wait_for_a_settle_in_flight(mut bed: Bed) {
    enqueue(&mut bed.eye, 2, 3).await;
    register(&mut bed.eye, 1).await;
    let first = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    let mut settling = bed.session().await;
    settling.begin().await;
    assert_eq!(done(&mut settling.pg, first).await, APPLIED);

    assert_eq!(claim(&mut bed.eye, 1, 10).await.unwrap().len(), 1);
    settling.commit().await;
    assert_eq!(bed.outcomes(first.id).await, ["done"]);
}

races!(
    claims_in_open_transactions_are_disjoint_and_never_exceed_their_limit,
    claims_at_the_same_moment_are_disjoint,
    a_claim_goes_past_rows_that_a_frozen_transaction_keeps,
    a_claim_whose_commit_comes_late_is_behind_the_cursor_and_found_from_the_beginning,
    a_claim_does_not_wait_for_a_settle_in_flight,
);
