//! Retiring and re-running by hand, in transactions that are open while others claim, settle, remove and re-run.

use std::time::Duration;

use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use crate::steps::{APPLIED, REFUSED, claim, done, enqueue, register, session::Bed, sql};

async fn rerun(pg: &mut PgConnection, id: i64) -> Result<String, String> {
    let rerun = sqlx::query_scalar(sql!("job/rerun"))
        .bind(id)
        .bind(None::<&str>)
        .bind("tess");
    rerun.fetch_one(pg).await.map_err(|error| error.to_string())
}

async fn retire(pg: &mut PgConnection, id: i64) -> Result<String, String> {
    let retire = sqlx::query_scalar(sql!("job/retire"))
        .bind(id)
        .bind(None::<&str>)
        .bind("tess");
    retire.fetch_one(pg).await.map_err(|error| error.to_string())
}

/// Removes what was over an hour ago.
async fn prune(pg: &mut PgConnection) -> i64 {
    let before = jiff::Timestamp::now() - Duration::from_secs(3600);
    let prune = sqlx::query_scalar(sql!("job/prune"))
        .bind(before.to_sqlx())
        .bind(100i64);
    prune.fetch_one(pg).await.unwrap()
}

/// One job that was done long ago.
async fn finished(bed: &mut Bed) -> i64 {
    let id = enqueue(&mut bed.eye, 1, 3).await[0];
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    assert_eq!(done(&mut bed.eye, held).await, APPLIED);
    let mut session = bed.session().await;
    session
        .run("update rowlock.outcome set ended_at = 'epoch'; update rowlock.job set created_at = 'epoch'")
        .await;
    id
}

async fn bodies(bed: &mut Bed) -> i64 {
    bed.count("select count(*) from rowlock.job").await
}

async fn a_body_is_not_removed_under_a_re_run_that_commits_meanwhile(mut bed: Bed) {
    let id = finished(&mut bed).await;
    let (mut person, sweep) = (bed.session().await, bed.session().await);
    person.begin().await;
    assert_eq!(rerun(&mut person.pg, id).await.unwrap(), "done");
    let pid = sweep.pid;
    let sweeping = sweep.start(prune);
    bed.blocked(pid).await;
    person.commit().await;
    let (_, gone) = sweeping.await.unwrap();
    assert_eq!((gone, bodies(&mut bed).await, bed.places(id).await), (0, 1, [1, 0, 0]));
}

async fn a_re_run_after_the_removal_finds_nothing(mut bed: Bed) {
    let id = finished(&mut bed).await;
    let (mut sweep, person) = (bed.session().await, bed.session().await);
    sweep.begin().await;
    let removed = prune(&mut sweep.pg).await;
    let pid = person.pid;
    let rerunning = person.start(async move |pg| rerun(pg, id).await);
    bed.blocked(pid).await;
    sweep.commit().await;
    let said = rerunning.await.unwrap().1.unwrap_err();
    assert!(said.contains(&format!("no job {id}")), "{said}");
    assert_eq!((removed, bed.places(id).await), (1, [0, 0, 0]));
}

async fn two_re_runs_at_once_are_one(mut bed: Bed) {
    let id = finished(&mut bed).await;
    let (mut first, second) = (bed.session().await, bed.session().await);
    first.begin().await;
    rerun(&mut first.pg, id).await.unwrap();
    let pid = second.pid;
    let other = second.start(async move |pg| rerun(pg, id).await);
    bed.blocked(pid).await;
    first.commit().await;
    let said = other.await.unwrap().1.unwrap_err();
    assert!(said.contains("is ready, and cannot be re-run"), "{said}");
    assert_eq!(bed.places(id).await, [1, 0, 0]);
}

async fn a_job_claimed_while_it_is_retired_is_retired_from_the_lease(mut bed: Bed) {
    let id = enqueue(&mut bed.eye, 1, 3).await[0];
    register(&mut bed.eye, 1).await;
    let (mut claimer, person) = (bed.session().await, bed.session().await);
    claimer.begin().await;
    let held = claim(&mut claimer.pg, 1, 1).await.unwrap()[0];
    let pid = person.pid;
    let retiring = person.start(async move |pg| retire(pg, id).await);
    bed.blocked(pid).await;
    claimer.commit().await;
    assert_eq!(retiring.await.unwrap().1.unwrap(), "leased");
    assert_eq!(
        (bed.places(id).await, bed.outcomes(id).await),
        ([0, 0, 1], vec!["retired".to_owned()])
    );
    assert_eq!(
        done(&mut bed.eye, held).await,
        REFUSED,
        "a late success counts for nothing"
    );
}

async fn a_job_done_while_it_is_retired_is_done(mut bed: Bed) {
    let id = enqueue(&mut bed.eye, 1, 3).await[0];
    register(&mut bed.eye, 1).await;
    let held = claim(&mut bed.eye, 1, 1).await.unwrap()[0];
    let (mut settler, person) = (bed.session().await, bed.session().await);
    settler.begin().await;
    assert_eq!(done(&mut settler.pg, held).await, APPLIED);
    let pid = person.pid;
    let retiring = person.start(async move |pg| retire(pg, id).await);
    bed.blocked(pid).await;
    settler.commit().await;
    let said = retiring.await.unwrap().1.unwrap_err();
    assert!(said.contains("is finished, and cannot be retired"), "{said}");
    assert_eq!(
        (bed.places(id).await, bed.outcomes(id).await),
        ([0, 0, 0], vec!["done".to_owned()])
    );
}

races!(
    a_body_is_not_removed_under_a_re_run_that_commits_meanwhile,
    a_re_run_after_the_removal_finds_nothing,
    two_re_runs_at_once_are_one,
    a_job_claimed_while_it_is_retired_is_retired_from_the_lease,
    a_job_done_while_it_is_retired_is_done,
);
