//! A slot's connection passing from job to job, where the database can be held up in the middle of it.

use std::time::Duration;

use rowlock::{Ended, State, atomic};
use sqlx::Connection;

use super::{
    cases::{
        AT_ONCE, Bed, Note, Running, Seen,
        handle::relay::{as_told, enqueue, worker},
        sql, until,
    },
    db::{Conn, Ctx, Tx},
};

/// Jobs of one slot that are in line share a connection, and nothing but its own is sent between them.
async fn the_string_that_commits_a_job_opens_the_next_ones_transaction(bed: &Bed) {
    let ids = enqueue(bed, ["first of 5", "b", "c", "d", "e"]).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx<String>, job: Note, tx: Tx| {
        let seen = kept.clone();
        async move {
            let mut eye = Conn::connect(cx.state()).await?;
            let last = "select left(query, 27) || ' in ' || pid from pg_stat_activity
                        where datname = current_database() and application_name = 'rowlock handler' and state = 'idle in transaction'";
            let last: String = sqlx::query_scalar(sql(last)).fetch_one(&mut eye).await?;
            eye.close().await?;
            seen.push(last);
            as_told(cx, job, tx).await
        }
    };
    bed.work(worker(bed).handle(atomic(handler)), &ids).await;
    let seen = seen.all();
    assert!(seen[0].starts_with("begin"), "{seen:?}");
    assert!(seen[1].starts_with("select rowlock.settle_done("), "{seen:?}");
    assert!(seen[2..].iter().all(|last| *last == seen[1]), "{seen:?}");
}

/// The first job's commit hangs until the gate is opened: deferred triggers run inside the commit.
async fn hold_commits(bed: &Bed) -> Conn {
    bed.run("create function hold() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$").await;
    bed.run("create constraint trigger hold after insert on ledger deferrable initially deferred for each row when (new.note like 'first%') execute function hold()").await;
    let mut gate = bed.conn().await;
    sqlx::raw_sql("select pg_advisory_lock(7)")
        .execute(&mut gate)
        .await
        .unwrap();
    gate
}

const HELD: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event = 'advisory' and query like 'select rowlock.settle_done(%'";

async fn a_stop_that_comes_during_the_commit_releases_the_next_job_unrun(bed: &Bed) {
    let mut gate = hold_commits(bed).await;
    let ids = enqueue(bed, ["first of 3", "b", "c"]).await;
    let running = Running::start(worker(bed).grace(Duration::from_secs(5)).handle(atomic(as_told)));
    until("the commit to hang", async || bed.count(HELD).await == 1).await;
    let stopping = tokio::spawn(running.stop());
    until("the stop to be heard", async || {
        bed.ends(ids[2]).await == [Ended::Released]
    })
    .await;
    sqlx::raw_sql("select pg_advisory_unlock(7)")
        .execute(&mut gate)
        .await
        .unwrap();
    stopping.await.unwrap();
    assert_eq!(bed.ends(ids[0]).await, [Ended::Done]);
    assert_eq!(bed.ends(ids[1]).await, [Ended::Released]);
    let second = bed.job(ids[1]).await;
    assert_eq!((second.state, second.attempt), (State::Ready, 0));
    assert_eq!(bed.ledger().await, 1);
}

async fn a_connection_that_dies_in_the_commit_takes_no_other_job_with_it(bed: &Bed) {
    let mut gate = hold_commits(bed).await;
    let ids = enqueue(bed, ["first of 3", "b", "c"]).await;
    let running = Running::start(worker(bed).handle(atomic(as_told).backoff(AT_ONCE)));
    until("the commit to hang", async || bed.count(HELD).await == 1).await;
    let kill = HELD.replace("count(*)", "pg_terminate_backend(pid)");
    sqlx::raw_sql(sql(&kill)).execute(&mut gate).await.unwrap();
    until("the others to be done", async || {
        bed.job(ids[1]).await.state == State::Finished && bed.job(ids[2]).await.state == State::Finished
    })
    .await;
    sqlx::raw_sql("select pg_advisory_unlock(7)")
        .execute(&mut gate)
        .await
        .unwrap();
    until("the first to be done", async || {
        bed.job(ids[0]).await.state == State::Finished
    })
    .await;
    let counters = running.stop().await;
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retried, Ended::Done]);
    assert_eq!(
        (bed.ends(ids[1]).await, bed.ends(ids[2]).await),
        (vec![Ended::Done], vec![Ended::Done])
    );
    assert_eq!(bed.ledger().await, 3);
    assert_eq!(counters.commits_resolved(), 1);
}

mod tests {
    super::super::cases!(
        the_string_that_commits_a_job_opens_the_next_ones_transaction,
        a_stop_that_comes_during_the_commit_releases_the_next_job_unrun,
        a_connection_that_dies_in_the_commit_takes_no_other_job_with_it,
    );
}
