//! Retired rows are cases, and a reopened case puts its row back.

use rowlock::{
    Ended, Fail, Retention, adopt, atomic,
    observe::{CaseFilter, VerifyLimits},
};

use super::{
    bed::{age, claim, fill, opened, stand},
    worker::{Snooze, remind, runs_until, soon, worked_off},
};
use crate::steps::{catalog::script, session::Bed};

async fn no_luck(_cx: adopt::Ctx, row: Snooze, _tx: adopt::Tx) -> adopt::Outcome {
    Err(Fail::retire(format!("{} is no address", row.user_email)))
}

async fn a_retired_row_is_a_case_and_comes_back_when_that_is_reopened(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let adopted = opened(&bed.rowlock).await;
    runs_until(
        adopted.worker().handle(soon(atomic(no_luck))),
        "both to be retired",
        |c| c.settled(Ended::Retired) == 2,
    )
    .await;
    let observe = bed.rowlock.observe();
    let mut cases = observe.cases(&CaseFilter::new().limit(10)).await.unwrap();
    // They were retired side by side.
    cases.sort_by_key(|case| case.reason.clone());
    assert_eq!(cases.len(), 2);
    let job = observe.job(cases[0].id).await.unwrap().unwrap();
    assert_eq!(
        (job.queue.as_str(), job.kind.as_str()),
        ("email_snoozes", "rowlock.adopted-row")
    );
    assert_eq!(cases[0].reason, "user-1@example.org is no address");
    assert!(observe.verify(&VerifyLimits::new()).await.unwrap().holds());

    bed.rowlock.operate().reopen(cases[0].id, "me").await.unwrap();
    worked_off(adopted.worker().handle(soon(atomic(remind))), 1).await;
    assert_eq!(bed.count("select id from sent").await, 1);
    assert!(stand(&mut bed.eye, 1).await.inactive);
    assert_eq!(
        stand(&mut bed.eye, 2).await.last_error.as_deref(),
        Some("user-2@example.org is no address")
    );
    assert_eq!(observe.cases(&CaseFilter::new().limit(10)).await.unwrap().len(), 1);
    assert!(observe.verify(&VerifyLimits::new()).await.unwrap().holds());
}

async fn a_case_does_not_bring_back_what_was_put_back_by_hand(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let adopted = opened(&bed.rowlock).await;
    runs_until(
        adopted.worker().handle(soon(atomic(no_luck))),
        "it to be retired",
        |c| c.settled(Ended::Retired) == 1,
    )
    .await;
    script(&mut bed.eye, "update email_snoozes set inactive = false, attempts = 0")
        .await
        .unwrap();
    worked_off(adopted.worker().handle(soon(atomic(remind))), 1).await;
    let case = bed.rowlock.observe().cases(&CaseFilter::new().limit(10)).await.unwrap()[0].id;
    bed.rowlock.operate().reopen(case, "me").await.unwrap();

    let worker = adopted.worker().handle(soon(atomic(remind)));
    let (counters, observe) = (worker.counters(), bed.rowlock.observe());
    let over = proof::bed::until("the case to be over", std::time::Duration::from_secs(60), || async {
        let job = observe.job(case).await.unwrap().unwrap();
        (job.state == rowlock::State::Finished).then_some(())
    });
    worker.run_until(over).await.unwrap();
    assert_eq!(
        (counters.claimed(), bed.count("select count(*) from sent").await),
        (0, 1)
    );
}

async fn what_recovery_retires_is_a_case_in_the_same_commit(mut bed: Bed) {
    fill(&mut bed.eye, 3).await;
    script(&mut bed.eye, "update email_snoozes set max_attempts = 1")
        .await
        .unwrap();
    claim(&mut bed.eye, 3, &[]).await;
    age(&mut bed.eye, 3600).await;
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .lease(std::time::Duration::from_secs(2));
    runs_until(worker.handle(soon(atomic(remind))), "all to be recovered", |c| {
        c.expired() == 3
    })
    .await;
    assert_eq!(
        bed.count("select count(*) from email_snoozes where inactive and attempts = 1")
            .await,
        3
    );
    let cases = bed.rowlock.observe().cases(&CaseFilter::new().limit(10)).await.unwrap();
    assert_eq!(cases.len(), 3);
    assert!(
        cases[0].reason.starts_with("worker lost: somebody had the row"),
        "{}",
        cases[0].reason
    );
}

async fn a_retention_that_the_worker_for_cases_would_refuse_is_refused_at_start(mut bed: Bed) {
    fill(&mut bed.eye, 0).await;
    let day = std::time::Duration::from_secs(24 * 3600);
    let keep = Retention::new().keys(90 * day);
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .retention(keep)
        .handle(soon(atomic(remind)));
    let refused = worker.run_until(std::future::pending()).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("retention: keys are kept for 90 d, but a job of kind rowlock.adopted-row can take "),
        "{refused}"
    );
}

on_postgresql!(
    a_retention_that_the_worker_for_cases_would_refuse_is_refused_at_start,
    a_retired_row_is_a_case_and_comes_back_when_that_is_reopened,
    a_case_does_not_bring_back_what_was_put_back_by_hand,
    what_recovery_retires_is_a_case_in_the_same_commit,
);
