//! Which jobs a claim by the functions takes, and which it leaves alone.

use sqlx::{Connection, Executor, PgConnection};

use crate::protocol::stage::{Side, alone};

/// Ends every job that is held.
const DONE: &str = "select rowlock.done_v1(l.id || '-' || l.epoch || '-' || l.worker) from rowlock.lease l";

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
            "{\"version\": 1000}",
        ] {
            put(side, options).await;
        }
        let worker = side.join().await;
        assert_eq!(taken(side, &worker, "'{note}', 1").await, "2");
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "1");
        assert_eq!(taken(side, &worker, "'{note@2}', 9").await, "3");
        assert_eq!(taken(side, &worker, "'{note@2}', 9").await, "");
        assert_eq!(taken(side, &worker, "'{note@1000}', 9").await, "6");
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

/// Two concurrent claims take different jobs, and neither waits.
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
        side.run(DONE).await;
        // It or what waits beside it, by chance; then it.
        if taken(side, &worker, "'{note}', 9").await == "4" {
            side.run(DONE).await;
            assert_eq!(taken(side, &worker, "'{note}', 9").await, "2");
        }
        put(side, "{}").await;
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "", "nothing beside it");
        // Unless it takes so long that its end is unknown.
        side.run("update rowlock.lease set claimed_at = claimed_at - interval '1 hour'")
            .await;
        assert_ne!(taken(side, &worker, "'{note}', 9").await, "", "a lease is long enough");
    })
    .await;
}

/// Somebody is claiming the lost one, or froze while he did: the others go on.
#[tokio::test]
async fn a_lost_job_that_somebody_holds_keeps_nobody_from_the_others() {
    let case = "a_lost_job_that_somebody_holds_keeps_nobody_from_the_others";
    alone(case, async |side| {
        for _ in 0..6 {
            put(side, "{}").await;
        }
        side.run("update rowlock.ready set alone = true where id = 1").await;
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        let hold = "begin; select from rowlock.ready where id = 1 for update";
        other.execute(sqlx::raw_sql(hold)).await.unwrap();
        for id in 2..=6 {
            let worker = side.join().await;
            assert_eq!(taken(side, &worker, "'{note}', 1").await, id.to_string());
        }
    })
    .await;
}

/// Neither waits for ever for the other, whatever the priority. One in 2^39 runs fails by chance.
#[tokio::test]
async fn lost_jobs_and_others_take_turns() {
    alone("lost_jobs_and_others_take_turns", async |side| {
        for _ in 0..40 {
            put(side, "{}").await;
            put(side, "{\"priority\": 1}").await;
        }
        side.run("update rowlock.ready set alone = true where priority = 3")
            .await;
        let worker = side.join().await;
        for _ in 0..40 {
            assert_ne!(taken(side, &worker, "'{note}', 1").await, "");
            side.run(DONE).await;
        }
        let left = "select count(distinct alone)::text from rowlock.ready";
        assert_eq!(side.text(left).await, "2");
        let ended = "select count(distinct j.priority)::text from rowlock.outcome o join rowlock.job j on j.id = o.id";
        assert_eq!(side.text(ended).await, "2");
    })
    .await;
}

/// Of two kinds that are equally urgent neither waits until there are no more of the other.
#[tokio::test]
async fn kinds_of_one_priority_take_turns() {
    alone("kinds_of_one_priority_take_turns", async |side| {
        side.run("select rowlock.enqueue_v1(k) from unnest('{note,mail}'::text[]) k, generate_series(1, 40)")
            .await;
        let worker = side.join().await;
        for _ in 0..40 {
            assert_ne!(taken(side, &worker, "'{note,mail}', 1").await, "");
        }
        let kinds = "select count(distinct kind_no)::text from rowlock.lease";
        assert_eq!(side.text(kinds).await, "2");
    })
    .await;
}

/// Two threads under one number: the second sees what the first took alone.
#[tokio::test]
async fn two_claims_of_one_worker_take_nothing_beside_what_runs_alone() {
    let case = "two_claims_of_one_worker_take_nothing_beside_what_runs_alone";
    alone(case, async |side| {
        put(side, "{}").await;
        side.run("update rowlock.ready set alone = true").await;
        let worker = side.join().await;
        side.run("begin").await;
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "1");
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        let put = "select rowlock.enqueue_v1('note')";
        other.execute(sqlx::raw_sql(put)).await.unwrap();
        let claim = format!("select count(*)::text from rowlock.claim_v1({worker}, 'default', '{{note}}', 9)");
        let waits = side.held_up(&claim).await;
        side.run("commit").await;
        assert_eq!(waits.await.unwrap().unwrap(), "0");
    })
    .await;
}

/// There may be many, and many more that are over and not yet removed.
#[tokio::test]
async fn a_claim_does_not_read_all_leases() {
    alone("a_claim_does_not_read_all_leases", async |side| {
        side.run(
            "insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
             select 1000000 + i, 1, 7, 1, 1, 1, 1, false, 3, now() from generate_series(1, 1000) i",
        )
        .await;
        put(side, "{}").await;
        let worker = side.join().await;
        side.run("begin").await;
        assert_eq!(taken(side, &worker, "'{note}', 9").await, "1");
        let read = "select (pg_stat_get_xact_tuples_returned(l) + pg_stat_get_xact_tuples_fetched(l) < 500)::text
            from (select 'rowlock.lease'::regclass::oid) as x (l)";
        assert_eq!(side.text(read).await, "true");
        side.run("commit").await;
    })
    .await;
}

/// Its head ran when it was paused, and came back.
#[tokio::test]
async fn the_head_of_a_paused_group_is_not_claimed_when_it_comes_back() {
    let case = "the_head_of_a_paused_group_is_not_claimed_when_it_comes_back";
    alone(case, async |side| {
        put(side, "{\"group\": \"g\"}").await;
        let worker = side.join().await;
        let token = side.claim(&worker).await;
        side.run("select rowlock.pause_v1('group:g', 'ann')").await;
        side.run(&format!("select rowlock.release_v1('{token}')")).await;
        assert_eq!(taken(side, &worker, "'{note}'").await, "", "paused");
        assert_eq!(side.text("select rowlock.recover_v1()::text").await, "0");
        let place = "select concat((select count(*) from rowlock.ready), (select count(*) from rowlock.waiting))";
        assert_eq!(
            side.text(place).await,
            "01",
            "a worker of the library would take it out of ready"
        );
        side.run("select rowlock.resume_v1('group:g', 'ann')").await;
        assert_eq!(taken(side, &worker, "'{note}'").await, "1");
    })
    .await;
}

/// A head ends while another job enters its group: recovery finds the new job.
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
