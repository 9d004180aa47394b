//! Rows that a user's constraint or trigger refuses to change: they are reported and left out, and no other row is
//! stopped.

use std::time::Duration;

use rowlock::{Ended, Fail, adopt, atomic};

use super::{
    bed::{age, claim, fill, opened, stand},
    worker::{Snooze, remind, runs_until, soon, worked_off},
};
use crate::steps::{catalog::script, session::Bed};

/// Refuses what `when` says, and counts: a sequence is not rolled back.
async fn refuse(bed: &mut Bed, name: &str, kind: &str, when: &str) {
    let trigger = format!(
        "create sequence if not exists refusals;
         create function {name}() returns trigger language plpgsql as $$
         begin
           if {when} then
             perform nextval('refusals');
             raise exception 'not this one';
           end if;
           return new;
         end $$;
         create {kind} for each row execute function {name}()"
    );
    script(&mut bed.eye, &trigger).await.unwrap();
}

const REFUSALS: &str = "select case when is_called then last_value else 0 end from refusals";

async fn a_row_that_may_not_be_claimed_does_not_stop_the_others(mut bed: Bed) {
    fill(&mut bed.eye, 6).await;
    let claimed = "new.claim_token is not null and new.id";
    let plain = "trigger plain before update on email_snoozes";
    refuse(&mut bed, "plain", plain, &format!("{claimed} = 1")).await;
    // Checked at the commit alone.
    let late = "constraint trigger late after update on email_snoozes deferrable initially deferred";
    refuse(&mut bed, "late", late, &format!("{claimed} = 2")).await;
    let adopted = opened(&bed.rowlock).await;
    // Slot by slot, so that the two are in the first batch and would be in every other.
    let counters = worked_off(adopted.worker().slots(1).handle(soon(atomic(remind))), 4).await;
    assert_eq!(counters.claimed(), 4);
    assert_eq!(bed.count("select count(*) from sent where id > 2").await, 4);
    for id in [1, 2] {
        let row = stand(&mut bed.eye, id).await;
        assert_eq!((row.inactive, row.claimed, row.attempts), (false, false, 0), "row {id}");
    }
    // Once fixed, they are handled by a worker that has not seen the refusal.
    script(
        &mut bed.eye,
        "drop trigger plain on email_snoozes; drop trigger late on email_snoozes",
    )
    .await
    .unwrap();
    worked_off(adopted.worker().handle(soon(atomic(remind))), 2).await;
}

async fn a_claim_that_may_not_be_ended_does_not_stop_recovery(mut bed: Bed) {
    fill(&mut bed.eye, 3).await;
    claim(&mut bed.eye, 3, &[]).await;
    age(&mut bed.eye, 3600).await;
    let trigger = "trigger keeps before update on email_snoozes";
    refuse(&mut bed, "keeps", trigger, "new.id = 1 and new.claim_token is null").await;
    let worker = opened(&bed.rowlock).await.worker().lease(Duration::from_secs(2));
    let over = |c: &rowlock::Counters| c.expired() == 2 && c.settled(Ended::Done) == 2;
    runs_until(worker.handle(soon(atomic(remind))), "the others to be recovered", over).await;
    let left = stand(&mut bed.eye, 1).await;
    assert_eq!((left.claimed, left.attempts), (true, 0));
}

async fn an_end_that_is_refused_is_not_written_again_and_again(mut bed: Bed) {
    fill(&mut bed.eye, 3).await;
    let trigger = "trigger ends before update on email_snoozes";
    refuse(&mut bed, "ends", trigger, "new.id < 3 and new.inactive").await;
    // The second is retired before its handler is asked.
    script(&mut bed.eye, "update email_snoozes set attempts = 5 where id = 2")
        .await
        .unwrap();
    let retires = |_cx: adopt::Ctx, row: Snooze, tx: adopt::Tx| async move {
        match row.id {
            1 => Err(Fail::retire("no luck")),
            _ => tx.done().ok(),
        }
    };
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted
        .worker()
        .slots(1)
        .grace(Duration::from_secs(2))
        .handle(soon(atomic(retires)));
    // One slot: the third begins when the others are over, and its stop waits for them.
    runs_until(worker, "the third to be done", |c| c.settled(Ended::Done) == 1).await;
    assert_eq!(
        bed.count(REFUSALS).await,
        3,
        "in the handler's transaction, alone, and of the second alone"
    );
    for id in [1, 2] {
        let row = stand(&mut bed.eye, id).await;
        assert_eq!((row.inactive, row.claimed), (false, true), "row {id}");
    }
}

async fn outbox(_cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx) -> adopt::Outcome {
    let insert = sqlx::query("insert into sent values ($1, $2)");
    insert.bind(row.id).bind(row.user_email).execute(&mut *tx).await?;
    tx.delete().ok()
}

async fn a_row_is_deleted_with_what_its_handler_wrote(mut bed: Bed) {
    fill(&mut bed.eye, 5).await;
    let kept = "create table kept (id bigint references email_snoozes);
        insert into kept values (5);
        update email_snoozes set max_attempts = 1 where id = 5";
    script(&mut bed.eye, kept).await.unwrap();
    let worker = opened(&bed.rowlock).await.worker().handle(soon(atomic(outbox)));
    let counters = runs_until(worker, "every row to end", |c| {
        (c.settled(Ended::Done), c.settled(Ended::Retired)) == (4, 1)
    })
    .await;
    assert_eq!((counters.claimed(), counters.lease_lost()), (5, 0));
    assert_eq!(bed.count("select count(distinct id) from sent").await, 4);
    assert_eq!(bed.count("select count(*) from sent").await, 4);
    // One that may not go is a failure as any other, and what was written for it is rolled back.
    assert_eq!(bed.count("select sum(id)::bigint from email_snoozes").await, 5);
    let said = stand(&mut bed.eye, 5).await.last_error.unwrap();
    assert!(said.contains("violates foreign key constraint"), "{said}");
}

on_postgresql!(
    a_row_that_may_not_be_claimed_does_not_stop_the_others,
    a_claim_that_may_not_be_ended_does_not_stop_recovery,
    an_end_that_is_refused_is_not_written_again_and_again,
    a_row_is_deleted_with_what_its_handler_wrote,
);
