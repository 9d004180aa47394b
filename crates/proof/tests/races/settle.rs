//! Settle against recovery, against a later claim, and against operators: one outcome, one place, in any order.

use rowlock::{Ended, State};

use crate::steps::{
    APPLIED, Held, REFUSED, Settled, claim, claim_alone, done, enqueue, expire, mark_dead, register, reopen,
    session::{Bed, Session},
    settle,
};

const FAR_AHEAD_S: i64 = 60;

/// A worker that holds this many jobs and has been declared dead.
async fn dead_worker(bed: &mut Bed, jobs: usize) -> Vec<Held> {
    enqueue(&mut bed.eye, jobs, 3).await;
    register(&mut bed.eye, 1).await;
    let mut held = claim(&mut bed.eye, 1, 100).await.unwrap();
    held.sort_unstable();
    assert_eq!(mark_dead(&mut bed.eye, FAR_AHEAD_S).await.unwrap(), [1]);
    held
}

async fn expire_skips_what_a_settle_holds_and_ends_the_rest(mut bed: Bed) {
    let held = dead_worker(&mut bed, 3).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    assert_eq!(done(&mut handler.pg, held[1]).await, APPLIED);

    // It would hang here if recovery waited for the settle.
    assert_eq!(expire(&mut bed.eye).await, [held[0].id, held[2].id]);
    handler.commit().await;

    assert_eq!(expire(&mut bed.eye).await, [0i64; 0]);
    assert_eq!(bed.outcomes(held[1].id).await, ["done"]);
    assert_eq!(bed.places(held[1].id).await, [0, 0, 0]);
    for lost in [held[0], held[2]] {
        assert_eq!(bed.outcomes(lost.id).await, ["lost"]);
        assert_eq!(bed.places(lost.id).await, [1, 0, 0]);
    }
}

async fn a_settle_that_rolls_back_leaves_its_lease_to_the_next_round(mut bed: Bed) {
    let held = dead_worker(&mut bed, 2).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    assert_eq!(done(&mut handler.pg, held[0]).await, APPLIED);
    assert_eq!(expire(&mut bed.eye).await, [held[1].id]);
    handler.rollback().await;

    assert_eq!(expire(&mut bed.eye).await, [held[0].id]);
    assert_eq!(bed.outcomes(held[0].id).await, ["lost"]);
    assert_eq!(bed.places(held[0].id).await, [1, 0, 0]);
}

/// Recovery first, its transaction still open: the settle must wait and then find nothing.
async fn settle_behind(bed: &mut Bed, end: impl AsyncFnOnce(&mut Session)) -> (Held, Settled) {
    let held = dead_worker(bed, 1).await[0];
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(expire(&mut recovery.pg).await, [held.id]);

    let handler = bed.session().await;
    let pid = handler.pid;
    let settling = handler.start(async move |pg| done(pg, held).await);
    bed.blocked(pid).await;
    end(&mut recovery).await;
    (held, settling.await.unwrap().1)
}

async fn a_settle_behind_an_expiry_that_commits_finds_its_lease_lost(mut bed: Bed) {
    let (held, settled) = settle_behind(&mut bed, Session::commit).await;
    assert_eq!(settled, REFUSED);
    assert_eq!(bed.outcomes(held.id).await, ["lost"]);
    assert_eq!(bed.places(held.id).await, [1, 0, 0]);
}

async fn a_settle_behind_an_expiry_that_rolls_back_stands(mut bed: Bed) {
    let (held, settled) = settle_behind(&mut bed, Session::rollback).await;
    assert_eq!(settled, APPLIED);
    assert_eq!(bed.outcomes(held.id).await, ["done"]);
    assert_eq!(bed.places(held.id).await, [0, 0, 0]);
}

async fn a_late_worker_cannot_settle_a_reclaimed_job(mut bed: Bed) {
    let late = dead_worker(&mut bed, 1).await[0];
    assert_eq!(expire(&mut bed.eye).await, [late.id]);
    register(&mut bed.eye, 2).await;
    assert_eq!(
        claim(&mut bed.eye, 2, 10).await.unwrap(),
        [],
        "after a lost worker a job is claimed alone"
    );
    let owner = claim_alone(&mut bed.eye, 2).await.unwrap()[0];
    assert_eq!((owner.id, owner.epoch, owner.attempt), (late.id, late.epoch + 1, 2));

    // Every outcome, the hand-back of an unrun job included, is refused and writes nothing.
    for ended in Ended::ALL {
        let to = match ended {
            Ended::Retried | Ended::Deferred | Ended::Released => State::Ready,
            Ended::Retired | Ended::Lost => State::Case,
            _ => State::Finished,
        };
        assert_eq!(
            settle(&mut bed.eye, late, ended, to, None).await.unwrap(),
            REFUSED,
            "{ended:?}"
        );
    }
    // Each part of the token counts: the right epoch under another worker's number, and the other way round.
    let forged = [
        Held {
            epoch: owner.epoch,
            ..late
        },
        Held {
            worker: owner.worker,
            ..late
        },
    ];
    for token in forged {
        assert_eq!(done(&mut bed.eye, token).await, REFUSED);
    }
    assert_eq!(bed.outcomes(late.id).await, ["lost"]);
    assert_eq!(bed.places(late.id).await, [0, 1, 0]);

    assert_eq!(done(&mut bed.eye, owner).await, APPLIED);
    assert_eq!(bed.outcomes(late.id).await, ["lost", "done"]);
}

async fn two_settles_of_one_token_write_one_outcome(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    let mut first = bed.session().await;
    first.begin().await;
    let retry = settle(&mut first.pg, held, Ended::Retried, State::Ready, None)
        .await
        .unwrap();
    assert_eq!(retry, APPLIED);

    let second = bed.session().await;
    let pid = second.pid;
    let settling = second.start(async move |pg| done(pg, held).await);
    bed.blocked(pid).await;
    first.commit().await;

    assert_eq!(settling.await.unwrap().1, REFUSED);
    assert_eq!(bed.outcomes(held.id).await, ["retried"]);
    assert_eq!(bed.places(held.id).await, [1, 0, 0]);
}

async fn a_case_reopened_twice_at_once_is_reopened_once(mut bed: Bed) {
    enqueue(&mut bed.eye, 1, 1).await;
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(
        settle(&mut bed.eye, held, Ended::Retired, State::Case, None)
            .await
            .unwrap(),
        APPLIED
    );
    let mut first = bed.session().await;
    first.begin().await;
    assert!(reopen(&mut first.pg, held.id).await.unwrap());

    let second = bed.session().await;
    let (pid, id) = (second.pid, held.id);
    let reopening = second.start(async move |pg| reopen(pg, id).await);
    bed.blocked(pid).await;
    first.commit().await;

    assert!(
        !reopening.await.unwrap().1.unwrap(),
        "the second finds no case any more"
    );
    assert_eq!(bed.places(held.id).await, [1, 0, 0]);
    assert_eq!(
        bed.count("select count(*) from rowlock.audit where verb = 'reopen'")
            .await,
        1
    );
    let again = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(
        (again.epoch, again.attempt),
        (held.epoch + 1, 1),
        "a new epoch, all attempts back"
    );
}

races!(
    expire_skips_what_a_settle_holds_and_ends_the_rest,
    a_settle_that_rolls_back_leaves_its_lease_to_the_next_round,
    a_settle_behind_an_expiry_that_commits_finds_its_lease_lost,
    a_settle_behind_an_expiry_that_rolls_back_stands,
    a_late_worker_cannot_settle_a_reclaimed_job,
    two_settles_of_one_token_write_one_outcome,
    a_case_reopened_twice_at_once_is_reopened_once,
);
