//! The protocol on rows, forced step by step with two or three sessions.

use super::bed::{
    Claim, Stand, age, beat, claim, delete, fill, finish, ids, intend, recover, stand, take_back, unclaim,
};
use crate::steps::session::Bed;

const NOBODY: [(i64, bool); 0] = [];

/// One claim that is older than a minute, and who had it.
async fn stale(bed: &mut Bed) -> Claim {
    fill(&mut bed.eye, 1).await;
    let late = claim(&mut bed.eye, 1, &[]).await[0];
    age(&mut bed.eye, 61).await;
    late
}

async fn two_claims_at_once_take_disjoint_rows_in_order_of_their_due_time(mut bed: Bed) {
    fill(&mut bed.eye, 6).await;
    let (mut one, mut two) = (bed.session().await, bed.session().await);
    one.begin().await;
    assert_eq!(ids(&claim(&mut one.pg, 3, &[]).await), [1, 2, 3]);
    // It would hang here if a claim waited for another.
    assert_eq!(ids(&claim(&mut two.pg, 2, &[]).await), [4, 5]);
    one.rollback().await;
    assert_eq!(ids(&claim(&mut two.pg, 10, &[]).await), [1, 2, 3, 6]);
    assert_eq!(ids(&claim(&mut one.pg, 10, &[]).await), [0i64; 0]);
}

async fn what_is_not_due_inactive_or_claimed_is_left_alone(mut bed: Bed) {
    fill(&mut bed.eye, 3).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set remind_at = now() + interval '1 hour' where id = 1")
        .await;
    one.run("update email_snoozes set inactive = true where id = 2").await;
    assert_eq!(ids(&claim(&mut one.pg, 10, &[]).await), [3]);
    assert_eq!(ids(&claim(&mut one.pg, 10, &[]).await), [0i64; 0]);
}

async fn a_stale_workers_finish_is_refused(mut bed: Bed) {
    let late = stale(&mut bed).await;
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false)]);
    assert!(!finish(&mut bed.eye, late).await);
    assert!(!stand(&mut bed.eye, 1).await.inactive);
    let mut one = bed.session().await;
    one.run("update email_snoozes set remind_at = now()").await;
    let owner = claim(&mut bed.eye, 1, &[]).await[0];
    assert_ne!(owner.token, late.token);
    assert!(!finish(&mut bed.eye, late).await);
    assert!(finish(&mut bed.eye, owner).await);
    assert!(!finish(&mut bed.eye, owner).await, "and only once");
}

async fn a_stale_workers_unclaim_is_refused(mut bed: Bed) {
    let late = stale(&mut bed).await;
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false)]);
    let mut one = bed.session().await;
    one.run("update email_snoozes set remind_at = now()").await;
    let owner = claim(&mut bed.eye, 1, &[]).await[0];
    // Given back, retired, with or without an attempt: nothing of it touches the new owner's claim.
    for (counted, retire) in [(true, false), (false, false), (false, true)] {
        assert!(!unclaim(&mut bed.eye, late, counted, retire).await);
    }
    let Stand {
        claimed,
        attempts,
        inactive,
        ..
    } = stand(&mut bed.eye, 1).await;
    assert_eq!((claimed, attempts, inactive), (true, 1, false));
    assert_eq!(beat(&mut bed.eye, &[late, owner]).await, [(owner.token, true)]);
    assert!(finish(&mut bed.eye, owner).await);
}

async fn a_stale_worker_takes_no_intent_back(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let first = intend(&mut bed.eye, late, "mail").await.unwrap();
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false)]);
    // Nobody has the row.
    assert_eq!(take_back(&mut bed.eye, late, "mail", first).await, 0);
    let mut one = bed.session().await;
    one.run("update email_snoozes set remind_at = now()").await;
    let owner = claim(&mut bed.eye, 1, &[]).await[0];
    assert_eq!(intend(&mut bed.eye, owner, "mail").await, None, "it is in doubt");
    assert_eq!(take_back(&mut bed.eye, late, "mail", first).await, 0);
    assert_eq!(take_back(&mut bed.eye, owner, "mail", first).await, 1);
    // An intent that is made anew is another.
    let second = intend(&mut bed.eye, owner, "mail").await.unwrap();
    for (claim, made_at) in [(late, first), (late, second), (owner, first)] {
        assert_eq!(take_back(&mut bed.eye, claim, "mail", made_at).await, 0);
    }
    let open = "select count(*) from rowlock.ledger where key = 'mail' and answer is null";
    assert_eq!(bed.count(open).await, 1);
}

async fn an_intent_is_not_taken_back_behind_a_recovery_that_commits(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let made_at = intend(&mut bed.eye, late, "mail").await.unwrap();
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(recover(&mut recovery.pg, 60).await, [(1, false)]);
    let handler = bed.session().await;
    let pid = handler.pid;
    let taking = handler.start(async move |pg| take_back(pg, late, "mail", made_at).await);
    bed.blocked(pid).await;
    recovery.commit().await;
    assert_eq!(taking.await.unwrap().1, 0);
    let open = "select count(*) from rowlock.ledger where key = 'mail'";
    assert_eq!(bed.count(open).await, 1);
}

async fn a_claim_older_than_all_time_is_recovered_with_the_rest(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    claim(&mut bed.eye, 2, &[]).await;
    age(&mut bed.eye, 61).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set claimed_at = '-infinity' where id = 1")
        .await;
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false), (2, false)]);
}

async fn a_stale_workers_delete_is_refused(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(recover(&mut recovery.pg, 60).await, [(1, false)]);
    let handler = bed.session().await;
    let pid = handler.pid;
    let deleting = handler.start(async move |pg| delete(pg, late).await);
    bed.blocked(pid).await;
    recovery.commit().await;
    assert!(!deleting.await.unwrap().1);
    recovery.run("update email_snoozes set remind_at = now()").await;
    let owner = claim(&mut bed.eye, 1, &[]).await[0];
    assert!(!delete(&mut bed.eye, late).await);
    assert!(delete(&mut bed.eye, owner).await);
    assert_eq!(bed.count("select count(*) from email_snoozes").await, 0);
}

async fn recovery_leaves_a_row_alone_that_is_being_finished(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    assert!(finish(&mut handler.pg, late).await);
    // It would hang here if recovery waited.
    assert_eq!(recover(&mut bed.eye, 60).await, NOBODY);
    handler.commit().await;
    assert_eq!(recover(&mut bed.eye, 60).await, NOBODY);
    assert!(stand(&mut bed.eye, 1).await.inactive);
}

async fn a_finish_behind_a_recovery_that_commits_is_refused(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(recover(&mut recovery.pg, 60).await, [(1, false)]);
    let handler = bed.session().await;
    let pid = handler.pid;
    let finishing = handler.start(async move |pg| finish(pg, late).await);
    bed.blocked(pid).await;
    recovery.commit().await;
    assert!(!finishing.await.unwrap().1);
    let Stand { inactive, attempts, .. } = stand(&mut bed.eye, 1).await;
    assert_eq!((inactive, attempts), (false, 1));
}

async fn a_finish_behind_a_recovery_that_rolls_back_stands(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let mut recovery = bed.session().await;
    recovery.begin().await;
    assert_eq!(recover(&mut recovery.pg, 60).await, [(1, false)]);
    let handler = bed.session().await;
    let pid = handler.pid;
    let finishing = handler.start(async move |pg| finish(pg, late).await);
    bed.blocked(pid).await;
    recovery.rollback().await;
    assert!(finishing.await.unwrap().1);
    assert!(stand(&mut bed.eye, 1).await.inactive);
}

async fn a_finish_behind_a_retirement_is_refused(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let mine = claim(&mut bed.eye, 1, &[]).await[0];
    let mut other = bed.session().await;
    other.begin().await;
    assert!(unclaim(&mut other.pg, mine, false, true).await);
    let handler = bed.session().await;
    let pid = handler.pid;
    let finishing = handler.start(async move |pg| finish(pg, mine).await);
    bed.blocked(pid).await;
    other.commit().await;
    assert!(!finishing.await.unwrap().1);
    assert_eq!(stand(&mut bed.eye, 1).await.last_error.as_deref(), Some("it failed"));
}

async fn a_crash_before_the_commit_leaves_the_claim_to_recovery(mut bed: Bed) {
    let late = stale(&mut bed).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    handler.run("insert into sent values (1, 'x')").await;
    assert!(finish(&mut handler.pg, late).await);
    drop(handler);
    let pool = tokio::sync::Mutex::new(&mut bed.eye);
    // The server notices the end of a connection in its own time.
    let recovered = proof::bed::until(
        "the claim to be recovered",
        std::time::Duration::from_secs(20),
        || async {
            let recovered = recover(*pool.lock().await, 60).await;
            (!recovered.is_empty()).then_some(recovered)
        },
    );
    assert_eq!(recovered.await, [(1, false)]);
    assert_eq!(bed.count("select count(*) from sent").await, 0);
}

async fn a_failure_counts_moves_the_due_time_and_retires_with_the_last_attempt(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set max_attempts = 2").await;
    let first = claim(&mut bed.eye, 1, &[]).await[0];
    assert!(unclaim(&mut bed.eye, first, true, false).await);
    let said = Some("it failed".to_owned());
    let failed = |attempts, inactive, due| Stand {
        inactive,
        claimed: false,
        attempts,
        last_error: said.clone(),
        due,
    };
    assert_eq!(stand(&mut bed.eye, 1).await, failed(1, false, false));
    assert_eq!(claim(&mut bed.eye, 1, &[]).await, []);
    one.run("update email_snoozes set remind_at = now()").await;
    let second = claim(&mut bed.eye, 1, &[]).await[0];
    // Given back, it costs nothing.
    assert!(unclaim(&mut bed.eye, second, false, false).await);
    assert_eq!(stand(&mut bed.eye, 1).await, failed(1, false, false));
    one.run("update email_snoozes set remind_at = now()").await;
    let third = claim(&mut bed.eye, 1, &[]).await[0];
    assert!(unclaim(&mut bed.eye, third, true, true).await);
    assert_eq!(stand(&mut bed.eye, 1).await, failed(2, true, true));
}

async fn a_lost_worker_counts_and_retires_what_is_out_of_attempts(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set max_attempts = 1 where id = 2").await;
    claim(&mut bed.eye, 2, &[]).await;
    assert_eq!(recover(&mut bed.eye, 60).await, NOBODY, "nobody is silent yet");
    age(&mut bed.eye, 61).await;
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false), (2, true)]);
    for (id, retired) in [(1, false), (2, true)] {
        let Stand {
            inactive,
            claimed,
            attempts,
            last_error,
            ..
        } = stand(&mut bed.eye, id).await;
        assert_eq!((inactive, claimed, attempts), (retired, false, 1));
        let said = last_error.unwrap();
        assert!(
            said.starts_with("worker lost: somebody had the row and was silent for 61 s"),
            "{said}"
        );
    }
    assert!(!stand(&mut bed.eye, 1).await.due, "moved ahead by the backoff");
}

async fn a_beat_renews_what_it_holds_and_waits_for_no_handler(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let mine = claim(&mut bed.eye, 2, &[]).await;
    age(&mut bed.eye, 61).await;
    let mut handler = bed.session().await;
    handler.begin().await;
    handler
        .run("update email_snoozes set subject = 'changed' where id = 1")
        .await;
    // It would hang here if the heartbeat waited for the handler's own lock.
    let mut held = beat(&mut bed.eye, &mine).await;
    held.sort_by_key(|(_, renewed)| *renewed);
    assert_eq!(held, [(mine[0].token, false), (mine[1].token, true)]);
    handler.commit().await;
    // The first was not renewed, because its handler had it; now it can be recovered, and the other cannot.
    assert_eq!(recover(&mut bed.eye, 60).await, [(1, false)]);
    assert_eq!(beat(&mut bed.eye, &mine).await, [(mine[1].token, true)]);
}

async fn nothing_is_claimed_behind_an_open_breaker(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    assert_eq!(claim(&mut bed.eye, 1, &["mail"]).await, [], "nobody declared it yet");
    let mut one = bed.session().await;
    one.run(
        "insert into rowlock.breaker (name, state, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by)
         values ('mail', 'closed', 3, 1000000, 1000000, 1, now(), 'me')",
    )
    .await;
    assert_eq!(claim(&mut bed.eye, 1, &["mail"]).await.len(), 1);
    one.begin().await;
    one.run("update rowlock.breaker set state = 'open'").await;
    // A claim that begins before the commit waits for it, and then takes nothing.
    let claimer = bed.session().await;
    let pid = claimer.pid;
    let claiming = claimer.start(async |pg| claim(pg, 1, &["mail"]).await);
    bed.blocked(pid).await;
    one.commit().await;
    assert_eq!(claiming.await.unwrap().1, []);
    assert_eq!(claim(&mut bed.eye, 1, &[]).await.len(), 1, "others are not bound to it");
}

on_postgresql!(
    two_claims_at_once_take_disjoint_rows_in_order_of_their_due_time,
    what_is_not_due_inactive_or_claimed_is_left_alone,
    a_stale_workers_finish_is_refused,
    a_stale_workers_unclaim_is_refused,
    a_stale_workers_delete_is_refused,
    a_stale_worker_takes_no_intent_back,
    an_intent_is_not_taken_back_behind_a_recovery_that_commits,
    a_claim_older_than_all_time_is_recovered_with_the_rest,
    recovery_leaves_a_row_alone_that_is_being_finished,
    a_finish_behind_a_recovery_that_commits_is_refused,
    a_finish_behind_a_recovery_that_rolls_back_stands,
    a_finish_behind_a_retirement_is_refused,
    a_crash_before_the_commit_leaves_the_claim_to_recovery,
    a_failure_counts_moves_the_due_time_and_retires_with_the_last_attempt,
    a_lost_worker_counts_and_retires_what_is_out_of_attempts,
    a_beat_renews_what_it_holds_and_waits_for_no_handler,
    nothing_is_claimed_behind_an_open_breaker,
);
