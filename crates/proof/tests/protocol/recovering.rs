//! Recovery by the functions waits for nobody, and leaves nothing behind that makes the next one slower.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::protocol::stage::{Side, alone};

/// Silences every worker, long ago.
const SILENCE: &str = "update rowlock.worker set beat = beat - interval '1 day', lease_ms = 1";

/// How many leases a recovery ends that may wait for nobody.
async fn recovered(side: &Side, isolation: &str) -> i64 {
    let mut other = PgConnection::connect(&side.url()).await.unwrap();
    let begin = format!("begin isolation level {isolation}; set local lock_timeout = '5s'");
    other.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await.unwrap();
    let ended = sqlx::query_scalar("select rowlock.recover_v1()")
        .fetch_one(&mut other)
        .await
        .unwrap();
    other.execute(sqlx::raw_sql("commit")).await.unwrap();
    ended
}

/// A client that froze inside its heartbeat keeps its own jobs, and no others.
#[tokio::test]
async fn a_beat_that_is_not_committed_stops_no_recovery() {
    alone("a_beat_that_is_not_committed_stops_no_recovery", async |side| {
        side.run("select rowlock.enqueue_v1('note') from generate_series(1, 2)")
            .await;
        let (frozen, gone) = (side.join().await, side.join().await);
        let kept = side.claim(&frozen).await;
        side.claim(&gone).await;
        side.run(SILENCE).await;
        side.run(&format!(
            "begin; select rowlock.beat_v1({frozen}); update rowlock.worker set lease_ms = 60000 where id = {frozen}"
        ))
        .await;
        assert_eq!(recovered(side, "read committed").await, 1);
        side.run("commit").await;
        assert_eq!(recovered(side, "read committed").await, 0, "it beat");
        side.run(&format!("select rowlock.done_v1('{kept}')")).await;
    })
    .await;
}

/// The last attempt of a group's head was lost while somebody has the group: the others are recovered, and it is later.
#[tokio::test]
async fn a_group_that_somebody_holds_stops_no_recovery() {
    alone("a_group_that_somebody_holds_stops_no_recovery", async |side| {
        let put = r#"select rowlock.enqueue_v1('note', '{}', '{"group": "g", "attempts": 1}')"#;
        side.run(&format!("{put}; {put}; select rowlock.enqueue_v1('note')"))
            .await;
        let worker = side.join().await;
        side.claim(&worker).await;
        side.claim(&worker).await;
        side.run(SILENCE).await;
        side.run("begin; select from rowlock.job_group for no key update").await;
        assert_eq!(recovered(side, "read committed").await, 1);
        side.run("commit").await;
        assert_eq!(recovered(side, "read committed").await, 1);
        let places = "select string_agg(concat(id, ' ', state), ', ' order by id) from rowlock.jobs";
        assert_eq!(side.text(places).await, "1 case, 2 ready, 3 ready");
    })
    .await;
}

/// Without a worker of the library nobody else removes them.
#[tokio::test]
async fn the_dead_and_groups_without_jobs_are_removed() {
    alone("the_dead_and_groups_without_jobs_are_removed", async |side| {
        side.run(r#"select rowlock.enqueue_v1('note', '{}', '{"group": "g"}'); select rowlock.enqueue_v1('note')"#)
            .await;
        let (done, holds) = (side.join().await, side.join().await);
        let mut tokens = Vec::new();
        for worker in [&done, &holds] {
            tokens.push(side.claim(worker).await);
        }
        side.run(&format!("select rowlock.done_v1('{}')", tokens[0])).await;
        side.run(&format!(
            "select rowlock.leave_v1({done}); select rowlock.leave_v1({holds})"
        ))
        .await;
        let left =
            "select concat((select count(*) from rowlock.worker), ' ', (select count(*) from rowlock.job_group))";
        // An old snapshot cannot tell who holds what by now.
        side.run("begin; select from rowlock.lease for update").await;
        assert_eq!(recovered(side, "repeatable read").await, 0);
        assert_eq!(side.text(left).await, "2 1");
        // A worker that holds a job stays until the job is recovered.
        assert_eq!(recovered(side, "read committed").await, 0);
        assert_eq!(side.text(left).await, "1 0");
        side.run("commit").await;
        assert_eq!(recovered(side, "read committed").await, 1);
        assert_eq!(side.text(left).await, "0 0");
    })
    .await;
}

/// A dead worker whose claim is not committed yet is not forgotten, and neither is a group that somebody enters.
#[tokio::test]
async fn who_is_about_to_hold_something_is_not_forgotten() {
    alone("who_is_about_to_hold_something_is_not_forgotten", async |side| {
        side.run(r#"select rowlock.enqueue_v1('note', '{}', '{"group": "g"}')"#)
            .await;
        let first = side.join().await;
        let token = side.claim(&first).await;
        side.run(&format!(
            "select rowlock.done_v1('{token}'); select rowlock.enqueue_v1('note')"
        ))
        .await;
        let worker = side.join().await;
        side.run("begin").await;
        side.claim(&worker).await;
        side.run("select from rowlock.job_group for key share").await;
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        other.execute(sqlx::raw_sql(SILENCE)).await.unwrap();
        assert_eq!(recovered(side, "read committed").await, 0);
        side.run("commit").await;
        let left =
            "select concat((select count(*) from rowlock.worker), ' ', (select count(*) from rowlock.job_group))";
        assert_eq!(side.text(left).await, "1 1");
        assert_eq!(recovered(side, "read committed").await, 1, "what it claimed");
        assert_eq!(side.text(left).await, "0 0");
    })
    .await;
}
