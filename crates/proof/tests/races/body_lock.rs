//! Body locks: two at one slot, two at what a lost holder left, and a holder on its way out.

use sqlx::{PgConnection, Row};

use crate::steps::{
    APPLIED, Held, claim, done, enqueue, expire, mark_dead, register,
    session::{Bed, Session},
    sql,
};

type Time = Option<jiff_sqlx::Timestamp>;

/// What a try said.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Taken(i32),
    Raced,
    Full,
    LeaseLost,
}

async fn take(pg: &mut PgConnection, held: Held, slots: i32) -> Said {
    let row = sqlx::query(sql!("guard/body_lock_take"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind("customer:42")
        .bind(slots)
        .bind(None as Time)
        .fetch_one(pg)
        .await
        .unwrap();
    match (row.get("leased"), row.get("slot"), row.get("tried")) {
        (false, _, _) => Said::LeaseLost,
        (true, Some(slot), _) => Said::Taken(slot),
        (true, None, true) => Said::Raced,
        (true, None, false) => Said::Full,
    }
}

async fn release(pg: &mut PgConnection, held: Held, slot: i32) -> bool {
    let release = sqlx::query(sql!("guard/body_lock_release"))
        .bind(held.id)
        .bind(held.epoch)
        .bind(held.worker)
        .bind("customer:42")
        .bind(slot);
    release.fetch_optional(pg).await.unwrap().is_some()
}

/// So many claimed jobs.
async fn held(bed: &mut Bed, count: usize) -> Vec<Held> {
    enqueue(&mut bed.eye, count, 3).await;
    register(&mut bed.eye, 1).await;
    let mut held = claim(&mut bed.eye, 1, count as i32).await.unwrap();
    held.sort();
    held
}

/// Whose the slots are, by job.
async fn owners(bed: &mut Bed) -> Vec<(i32, i64)> {
    let owners = sqlx::query_as("select slot, id from rowlock.body_lock order by slot");
    owners.fetch_all(&mut bed.eye).await.unwrap()
}

/// One session has taken and not committed; the other's try must wait for how that ends.
async fn tried_meanwhile(bed: &mut Bed, a: Held, b: Held, end: impl AsyncFnOnce(&mut Session)) -> Said {
    let mut first = bed.session().await;
    first.begin().await;
    assert_eq!(take(&mut first.pg, a, 1).await, Said::Taken(1));
    let second = bed.session().await;
    let pid = second.pid;
    let second = second.start(async move |pg| take(pg, b, 1).await);
    bed.blocked(pid).await;
    end(&mut first).await;
    second.await.unwrap().1
}

async fn two_that_take_one_slot_at_once_do_not_both_get_it(mut bed: Bed) {
    let held = held(&mut bed, 2).await;
    let said = tried_meanwhile(&mut bed, held[0], held[1], Session::commit).await;
    assert_eq!(said, Said::Raced, "somebody was quicker");
    assert_eq!(take(&mut bed.eye, held[1], 1).await, Said::Full, "and is still in");
    assert_eq!(owners(&mut bed).await, [(1, held[0].id)]);
    assert_eq!(
        take(&mut bed.eye, held[1], 2).await,
        Said::Taken(2),
        "there may be another slot"
    );
}

async fn a_take_that_rolls_back_leaves_the_slot_to_who_waited(mut bed: Bed) {
    let held = held(&mut bed, 2).await;
    let said = tried_meanwhile(&mut bed, held[0], held[1], Session::rollback).await;
    assert_eq!((said, owners(&mut bed).await), (Said::Taken(1), vec![(1, held[1].id)]));
}

/// The holder is lost with its lease; both see what it left, one swaps the token, and the other's swap must miss.
async fn two_that_take_over_a_left_slot_at_once_do_not_both_get_it(mut bed: Bed) {
    let lost = held(&mut bed, 1).await[0];
    assert_eq!(take(&mut bed.eye, lost, 1).await, Said::Taken(1));
    mark_dead(&mut bed.eye, 60).await.unwrap();
    assert_eq!(expire(&mut bed.eye).await, [lost.id]);
    enqueue(&mut bed.eye, 2, 3).await;
    register(&mut bed.eye, 2).await;
    let next = claim(&mut bed.eye, 2, 2).await.unwrap();
    for (end, wanted) in [(true, Said::Raced), (false, Said::Taken(1))] {
        let said = tried_meanwhile(&mut bed, next[0], next[1], async move |first: &mut Session| match end {
            true => first.commit().await,
            false => first.rollback().await,
        })
        .await;
        assert_eq!(said, wanted);
        let owner = if end { next[0].id } else { next[1].id };
        assert_eq!(owners(&mut bed).await, [(1, owner)]);
        // As it was before: left by the one that was lost.
        let left = sqlx::query("update rowlock.body_lock set id = $1, epoch = $2, worker = $3");
        let left = left.bind(lost.id).bind(lost.epoch).bind(lost.worker);
        left.execute(&mut bed.eye).await.unwrap();
    }
    assert!(!release(&mut bed.eye, lost, 1).await, "the lost one frees nothing");
    assert_eq!(take(&mut bed.eye, lost, 1).await, Said::LeaseLost, "and takes nothing");
}

/// A holder that settles holds its lock until that commit: a take beside it finds the slot full, then free.
async fn a_slot_is_free_with_the_commit_that_settles_its_holder_and_not_before(mut bed: Bed) {
    let held = held(&mut bed, 2).await;
    assert_eq!(take(&mut bed.eye, held[0], 1).await, Said::Taken(1));
    let mut settling = bed.session().await;
    settling.begin().await;
    assert_eq!(done(&mut settling.pg, held[0]).await, APPLIED);
    assert_eq!(take(&mut bed.eye, held[1], 1).await, Said::Full);
    settling.commit().await;
    assert_eq!(take(&mut bed.eye, held[1], 1).await, Said::Taken(1));
    assert_eq!(owners(&mut bed).await, [(1, held[1].id)]);
}

/// Taking holds the lease in its place: it cannot be lost in between, so no slot is taken for a token without one.
async fn a_lease_cannot_be_lost_in_the_middle_of_a_take_or_a_release(mut bed: Bed) {
    let held = held(&mut bed, 1).await[0];
    for releases in [false, true] {
        let mut taking = bed.session().await;
        taking.begin().await;
        match releases {
            false => assert_eq!(take(&mut taking.pg, held, 1).await, Said::Taken(1)),
            true => assert!(release(&mut taking.pg, held, 1).await),
        }
        mark_dead(&mut bed.eye, 60).await.unwrap();
        assert_eq!(
            expire(&mut bed.eye).await,
            [0; 0],
            "recovery leaves it to the next round"
        );
        taking.commit().await;
    }
    assert_eq!(expire(&mut bed.eye).await, [held.id]);
}

async fn a_take_whose_reply_was_lost_finds_its_own_slot_again(mut bed: Bed) {
    let held = held(&mut bed, 2).await;
    assert_eq!(take(&mut bed.eye, held[0], 3).await, Said::Taken(1));
    assert_eq!(take(&mut bed.eye, held[0], 3).await, Said::Taken(1), "not a second one");
    assert_eq!(take(&mut bed.eye, held[1], 3).await, Said::Taken(2));
    assert!(release(&mut bed.eye, held[0], 1).await);
    assert!(!release(&mut bed.eye, held[0], 1).await, "never twice");
    assert!(!release(&mut bed.eye, held[0], 2).await, "and never another's");
    assert_eq!(owners(&mut bed).await, [(2, held[1].id)]);
}

races!(
    two_that_take_one_slot_at_once_do_not_both_get_it,
    a_take_that_rolls_back_leaves_the_slot_to_who_waited,
    two_that_take_over_a_left_slot_at_once_do_not_both_get_it,
    a_slot_is_free_with_the_commit_that_settles_its_holder_and_not_before,
    a_lease_cannot_be_lost_in_the_middle_of_a_take_or_a_release,
    a_take_whose_reply_was_lost_finds_its_own_slot_again,
);
