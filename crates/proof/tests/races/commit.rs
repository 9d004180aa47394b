//! The unknown commit, resolved by waiting for the old backend, and the commit that user code slipped in.

use std::{sync::Arc, time::Duration};

use proof::bed::until;
use rowlock::{
    AlreadyHandled, Ended, Fail, Job, State, atomic,
    postgres::{Ctx, Outcome, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::steps::{
    APPLIED, Held, Resolved, Settled, claim, claim_alone, done, enqueue, expire, mark_dead, register, resolve,
    session::{Bed, Session},
    settle,
};

async fn held_by_one(bed: &mut Bed) -> Held {
    enqueue(&mut bed.eye, 1, 3).await;
    register(&mut bed.eye, 1).await;
    claim(&mut bed.eye, 1, 1).await.unwrap()[0]
}

/// The old backend has settled and not committed; the look at the job must wait for how it ends.
async fn resolved_after(bed: &mut Bed, held: Held, end: impl AsyncFnOnce(&mut Session)) -> Resolved {
    let mut old = bed.session().await;
    old.begin().await;
    assert_eq!(done(&mut old.pg, held).await, APPLIED);

    let mut looking = bed.session().await;
    looking.begin().await;
    let pid = looking.pid;
    let looking = looking.start(async move |pg| resolve(pg, held).await.unwrap());
    bed.blocked(pid).await;
    end(&mut old).await;
    let (mut session, resolved) = looking.await.unwrap();
    session.commit().await;
    resolved
}

async fn an_unknown_commit_that_happened_is_found_as_its_outcome(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let resolved = resolved_after(&mut bed, held, Session::commit).await;
    assert_eq!(resolved, Resolved::Ended(Ended::Done));
}

async fn an_unknown_commit_that_did_not_happen_is_found_still_leased(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let resolved = resolved_after(&mut bed, held, Session::rollback).await;
    assert_eq!(resolved, Resolved::StillLeased);
    assert_eq!(bed.places(held.id).await, [0, 1, 0]);
}

async fn an_unknown_commit_of_a_cut_backend_is_found_still_leased(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let mut killer = bed.session().await;
    let resolved = resolved_after(&mut bed, held, async move |old: &mut Session| {
        let end = sqlx::query("select pg_terminate_backend($1)").bind(old.pid);
        end.execute(&mut killer.pg).await.unwrap();
    });
    assert_eq!(resolved.await, Resolved::StillLeased);
}

async fn an_unknown_commit_of_a_recovered_attempt_is_lost(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    mark_dead(&mut bed.eye, 60).await.unwrap();
    assert_eq!(expire(&mut bed.eye).await, [held.id]);
    let mut looking = bed.session().await;

    // The only outcome of this attempt is recovery's own.
    looking.begin().await;
    assert_eq!(resolve(&mut looking.pg, held).await.unwrap(), Resolved::Lost);
    looking.commit().await;

    // A later attempt's outcome is not taken for this one's.
    register(&mut bed.eye, 2).await;
    let owner = claim_alone(&mut bed.eye, 2).await.unwrap()[0];
    assert_eq!(done(&mut bed.eye, owner).await, APPLIED);
    looking.begin().await;
    assert_eq!(resolve(&mut looking.pg, held).await.unwrap(), Resolved::Lost);
    assert_eq!(
        resolve(&mut looking.pg, owner).await.unwrap(),
        Resolved::Ended(Ended::Done)
    );
    let never = Held { epoch: 99, ..held };
    assert_eq!(
        resolve(&mut looking.pg, never).await.unwrap(),
        Resolved::Lost,
        "a token that nobody had"
    );
    looking.commit().await;
}

async fn another_attempts_outcome_is_not_taken_for_this_ones(mut bed: Bed) {
    let first = held_by_one(&mut bed).await;
    let retried = settle(&mut bed.eye, first, Ended::Retried, State::Ready, None)
        .await
        .unwrap();
    assert_eq!(retried, APPLIED);
    let again = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(
        (again.id, again.epoch),
        (first.id, first.epoch + 1),
        "the same job and the same worker"
    );

    let mut looking = bed.session().await;
    looking.begin().await;
    assert_eq!(resolve(&mut looking.pg, again).await.unwrap(), Resolved::StillLeased);
    assert_eq!(
        resolve(&mut looking.pg, first).await.unwrap(),
        Resolved::Ended(Ended::Retried)
    );
    looking.commit().await;
}

async fn a_lock_timeout_while_resolving_is_an_error_not_an_answer(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let mut old = bed.session().await;
    old.begin().await;
    assert_eq!(done(&mut old.pg, held).await, APPLIED);

    let mut looking = bed.session().await;
    looking.begin().await;
    looking.run("set local lock_timeout = '50ms'").await;
    let refused = resolve(&mut looking.pg, held).await.unwrap_err();

    assert_eq!(
        refused.as_database_error().and_then(|e| e.code()).as_deref(),
        Some("55P03")
    );
    old.rollback().await;
}

const NOT_OURS: Settled = Settled {
    applied: false,
    marked: false,
};

async fn a_settle_outside_the_engines_transaction_writes_nothing_and_says_so(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let mut handler = bed.session().await;
    let with_marker = async |session: &mut Session| {
        settle(&mut session.pg, held, Ended::Done, State::Finished, Some("the marker"))
            .await
            .unwrap()
    };
    assert_eq!(
        with_marker(&mut handler).await,
        NOT_OURS,
        "no transaction was ever opened"
    );

    for slipped in [
        "commit",
        "rollback",
        "commit and chain",
        "rollback; begin",
        "commit; begin",
    ] {
        handler
            .run("begin; set local rowlock_tx.marker = 'the marker'; savepoint rowlock")
            .await;
        handler.run(slipped).await;
        assert_eq!(with_marker(&mut handler).await, NOT_OURS, "after {slipped}");
        handler.run("rollback").await;
    }
    assert_eq!(bed.outcomes(held.id).await, [""; 0]);
    assert_eq!(bed.places(held.id).await, [0, 1, 0]);

    // The same inside the transaction that was opened for it, savepoint and all, is the engine's own.
    handler
        .run("begin; set local rowlock_tx.marker = 'the marker'; savepoint rowlock")
        .await;
    handler
        .run("savepoint users_own; rollback to savepoint users_own; release savepoint users_own")
        .await;
    assert_eq!(with_marker(&mut handler).await, APPLIED);
    handler.commit().await;
    assert_eq!(bed.outcomes(held.id).await, ["done"]);
}

async fn another_attempts_marker_does_not_pass(mut bed: Bed) {
    let held = held_by_one(&mut bed).await;
    let mut handler = bed.session().await;
    handler
        .run("begin; set local rowlock_tx.marker = 'another attempt'")
        .await;
    let settled = settle(
        &mut handler.pg,
        held,
        Ended::Done,
        State::Finished,
        Some("this attempt"),
    )
    .await
    .unwrap();
    assert_eq!(settled, NOT_OURS);
    handler.commit().await;
    assert_eq!(bed.places(held.id).await, [0, 1, 0]);
}

#[derive(Clone, Serialize, Deserialize, Job)]
#[job(kind = "end")]
struct End {
    how: String,
}

async fn end(_: Ctx, job: End, tx: Tx) -> Outcome {
    match job.how.as_str() {
        "cancel" => Err(Fail::cancel("not wanted any more")),
        "retire" => Err(Fail::retire("somebody must look")),
        "already" => Err(AlreadyHandled.into()),
        _ => tx.done().ok(),
    }
}

/// Whatever a handler's transaction settles is refused at its commit; the engine's own writes are not.
async fn a_handlers_own_end_stays_its_own_when_the_record_of_it_does_not_commit(mut bed: Bed) {
    let refuse = "create function public.refuse() returns trigger language plpgsql as $$ begin
            if current_setting('application_name') = 'rowlock handler' then raise exception 'refused at commit'; end if;
            return null; end $$;
        create constraint trigger refuse after delete on rowlock.lease deferrable initially deferred
            for each row execute function public.refuse()";
    sqlx::raw_sql(refuse).execute(&mut bed.eye).await.unwrap();
    let ends = [
        ("cancel", Ended::Cancelled, Some("not wanted any more")),
        ("retire", Ended::Retired, Some("somebody must look")),
        ("already", Ended::Done, None),
        ("done", Ended::Retired, Some("refused at commit")),
    ];
    let mut ids = Vec::new();
    for (how, ..) in ends {
        let job = bed.rowlock.enqueue_now(End { how: how.into() }).attempts(1);
        ids.push(job.await.unwrap().id());
    }
    let worker = Worker::new(&bed.rowlock).queue("default", 2).handle(atomic(end));
    let (counters, stop) = (worker.counters(), Arc::new(Notify::new()));
    let stopped = stop.clone();
    let running = tokio::task::spawn_local(worker.run_until(async move { stopped.notified().await }));
    let rowlock = bed.rowlock.clone();
    for (id, (how, ended, error)) in ids.into_iter().zip(ends) {
        let attempt = until("the attempt to end", Duration::from_secs(20), async || {
            rowlock.observe().attempts(id).await.unwrap().pop()
        })
        .await;
        assert_eq!(attempt.outcome, ended, "{how}");
        match error {
            Some(error) => assert!(attempt.error.unwrap().contains(error), "{how}"),
            None => assert_eq!(attempt.error, None, "{how}"),
        }
    }
    stop.notify_one();
    running.await.unwrap().unwrap();
    assert_eq!(counters.already_handled(), 1);
}

races!(
    an_unknown_commit_that_happened_is_found_as_its_outcome,
    an_unknown_commit_that_did_not_happen_is_found_still_leased,
    an_unknown_commit_of_a_cut_backend_is_found_still_leased,
    an_unknown_commit_of_a_recovered_attempt_is_lost,
    another_attempts_outcome_is_not_taken_for_this_ones,
    a_lock_timeout_while_resolving_is_an_error_not_an_answer,
    a_settle_outside_the_engines_transaction_writes_nothing_and_says_so,
    another_attempts_marker_does_not_pass,
    a_handlers_own_end_stays_its_own_when_the_record_of_it_does_not_commit,
);
