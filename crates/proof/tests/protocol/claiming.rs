//! Which jobs a claim by the functions takes, and which it leaves alone.

use sqlx::{Connection, Executor, PgConnection};

use crate::stage::{Side, alone};

async fn put(side: &mut Side, options: &str) {
    let put = format!("select rowlock.enqueue_v1('note', '{{}}', '{options}')");
    side.run(&put).await;
}

/// The ids that a claim takes, in its order.
async fn taken(side: &mut Side, worker: &str, rest: &str) -> String {
    let claim = format!("select string_agg(c.id::text, ' ') from rowlock.claim_v1({worker}, 'default', {rest}) c");
    side.text(&claim).await
}

#[tokio::test]
async fn the_urgent_come_first_and_newer_versions_and_other_queues_stay() {
    let case = "the_urgent_come_first_and_newer_versions_and_other_queues_stay";
    alone(case, async |side| {
        for options in [
            "{}",
            "{\"priority\": 1}",
            "{\"version\": 2}",
            "{\"queue\": \"mail\"}",
            "{\"delay_ms\": 3600000}",
        ] {
            put(side, options).await;
        }
        let worker = side.join().await;
        assert_eq!(taken(side, &worker, "'{note}', 1").await, "2");
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "1");
        assert_eq!(taken(side, &worker, "'{note@2}', 9").await, "3");
        assert_eq!(taken(side, &worker, "'{note@2}', 9").await, "");
    })
    .await;
}

#[tokio::test]
async fn what_is_paused_or_behind_a_breaker_is_left_alone() {
    alone("what_is_paused_or_behind_a_breaker_is_left_alone", async |side| {
        put(side, "{}").await;
        let worker = side.join().await;
        for target in ["queue:default", "kind:note"] {
            side.run(&format!("select rowlock.pause_v1('{target}', 'ann')")).await;
            assert_eq!(taken(side, &worker, "'{note}'").await, "", "{target}");
            side.run(&format!("select rowlock.resume_v1('{target}', 'ann')")).await;
        }
        side.run(
            "insert into rowlock.breaker (name, state, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by)
             values ('stripe', 'open', 1, 1, 1, 1, now(), 'ann')",
        )
        .await;
        assert_eq!(taken(side, &worker, "'{note}', 1, '{stripe}'").await, "");
        side.run("update rowlock.breaker set state = 'closed'").await;
        assert_eq!(taken(side, &worker, "'{note}', 1, '{stripe}'").await, "1");
    })
    .await;
}

/// Two claims at once take different jobs, and neither waits.
#[tokio::test]
async fn two_claims_at_once_are_disjoint() {
    alone("two_claims_at_once_are_disjoint", async |side| {
        put(side, "{}").await;
        put(side, "{}").await;
        let (first, second) = (side.join().await, side.join().await);
        side.run("begin").await;
        assert_eq!(taken(side, &first, "'{note}', 1").await, "1");
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        let claim = format!("select c.id from rowlock.claim_v1({second}, 'default', '{{note}}', 9) c");
        let ids: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(claim))
            .fetch_all(&mut other)
            .await
            .unwrap();
        assert_eq!(ids, [2]);
        side.run("commit").await;
    })
    .await;
}

/// A job that was lost waits for a worker with empty hands, and is not passed by for ever.
#[tokio::test]
async fn what_runs_alone_gets_its_turn_among_busy_workers() {
    alone("what_runs_alone_gets_its_turn_among_busy_workers", async |side| {
        for _ in 0..3 {
            put(side, "{}").await;
        }
        let worker = side.join().await;
        assert_eq!(taken(side, &worker, "'{note}', 1").await, "1");
        side.run("update rowlock.ready set alone = true, due_at = clock_timestamp() where id = 2")
            .await;
        assert_eq!(taken(side, &worker, "'{note}', 1").await, "3", "just now it may wait");
        put(side, "{}").await;
        side.run("update rowlock.ready set due_at = due_at - interval '2 seconds' where alone")
            .await;
        assert_eq!(taken(side, &worker, "'{note}', 1").await, "", "the hands get empty");
        side.run("select rowlock.done_v1(l.id || '-' || l.epoch || '-' || l.worker) from rowlock.lease l")
            .await;
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "2");
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "", "nothing beside it");
    })
    .await;
}

/// A head ends while somebody enters its group: whoever entered is found by recovery.
#[tokio::test]
async fn who_enters_a_group_while_its_head_ends_gets_the_turn() {
    alone("who_enters_a_group_while_its_head_ends_gets_the_turn", async |side| {
        put(side, "{\"group\": \"g\"}").await;
        let worker = side.join().await;
        let token = side.claim(&worker).await;
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        let enters = "begin; select rowlock.enqueue_v1('note', '{}', '{\"group\": \"g\"}')";
        other.execute(sqlx::raw_sql(enters)).await.unwrap();
        side.run(&format!("select rowlock.done_v1('{token}')")).await;
        other.execute(sqlx::raw_sql("commit")).await.unwrap();
        assert_eq!(taken(side, &worker, "'{note}'").await, "", "nobody has the turn");
        assert_eq!(side.text("select rowlock.recover_v1()::text").await, "0");
        assert_eq!(taken(side, &worker, "'{note}'").await, "2");
    })
    .await;
}
