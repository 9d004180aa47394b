//! Two concurrent callers of the functions, step by step, and a server that goes away under them.

use proof::cluster::Cluster;
use sqlx::{Connection, Executor, PgConnection};

use crate::protocol::stage::{Side, alone, end};

const ENQUEUE: &str = r#"select concat(id, ' ', is_new) from rowlock.enqueue_v1('note', '{}', '{"key": "k"}')"#;
const ONCE: &str = "select concat(is_first, ' ', slot is not null, ' ', answer) from rowlock.once_v1('k', '{}')";

/// The second waits for the first, and gets what became of it.
#[tokio::test]
async fn of_two_enqueues_with_one_key_the_second_gets_the_job_of_the_first() {
    let case = "of_two_enqueues_with_one_key_the_second_gets_the_job_of_the_first";
    alone(case, async |side| {
        side.run("begin").await;
        assert_eq!(side.text(ENQUEUE).await, "1 t");
        let waits = side.held_up(ENQUEUE).await;
        side.run("commit").await;
        assert_eq!(waits.await.unwrap().unwrap(), "1 f");
        assert_eq!(side.text("select count(*)::text from rowlock.ready").await, "1");
    })
    .await;
}

/// A first that thought better of it leaves the key to the second.
#[tokio::test]
async fn an_enqueue_that_is_rolled_back_leaves_its_key_to_the_one_that_waits() {
    let case = "an_enqueue_that_is_rolled_back_leaves_its_key_to_the_one_that_waits";
    alone(case, async |side| {
        side.run("begin").await;
        let mine = side.text(ENQUEUE).await;
        let waits = side.held_up(ENQUEUE).await;
        side.run("rollback").await;
        let theirs = waits.await.unwrap().unwrap();
        assert!(theirs.ends_with(" t") && theirs != mine, "{mine}, {theirs}");
        let held = "select concat(j.id, ' ', k.id = j.id, ' ', (select count(*) from rowlock.ready))
            from rowlock.job j, rowlock.job_key k";
        assert_eq!(side.text(held).await, theirs + " 1");
    })
    .await;
}

/// The second caller of something that happens once gets the answer of the first.
#[tokio::test]
async fn a_twin_waits_and_gets_the_answer() {
    alone("a_twin_waits_and_gets_the_answer", async |side| {
        side.run("begin").await;
        let first =
            "select rowlock.answer_v1('k', o.slot, '7')::text from rowlock.once_v1('k', '{}') o where o.is_first";
        side.text(first).await;
        let waits = side.held_up(ONCE).await;
        side.run("commit").await;
        assert_eq!(waits.await.unwrap().unwrap(), "f f 7");
    })
    .await;
}

/// And is the first itself where the first came to nothing.
#[tokio::test]
async fn a_twin_is_the_first_where_the_first_rolls_back() {
    alone("a_twin_is_the_first_where_the_first_rolls_back", async |side| {
        side.run("begin").await;
        assert_eq!(side.text(ONCE).await, "t t ");
        let waits = side.held_up(ONCE).await;
        side.run("rollback").await;
        assert_eq!(waits.await.unwrap().unwrap(), "t t ");
    })
    .await;
}

/// Neither sees the other: the job waits for a name that is there already, until recovery looks.
#[tokio::test]
async fn who_begins_to_wait_while_the_name_is_completed_is_found_by_recovery() {
    let case = "who_begins_to_wait_while_the_name_is_completed_is_found_by_recovery";
    alone(case, async |side| {
        let mut other = PgConnection::connect(&side.url()).await.unwrap();
        let enters = r#"begin; select rowlock.enqueue_v1('note', '{}', '{"waits_for": "approval:1", "priority": 2}')"#;
        other.execute(sqlx::raw_sql(enters)).await.unwrap();
        let complete = "select rowlock.complete_v1('approval:1')::text";
        assert_eq!(side.text(complete).await, "0", "it saw somebody");
        other.execute(sqlx::raw_sql("commit")).await.unwrap();
        let worker = side.join().await;
        let claim = format!("select count(*)::text from rowlock.claim_v1({worker}, 'default', '{{note}}')");
        assert_eq!(side.text(&claim).await, "0", "it waits");
        assert_eq!(side.text("select rowlock.recover_v1()::text").await, "0", "no lease ended");
        let place = "select concat(priority, ' ', alone, ' ', attempt, ' ', (select count(*) from rowlock.waiting)) from rowlock.ready";
        assert_eq!(side.text(place).await, "2 f 0 0");
        assert_eq!(side.text(&claim).await, "1");
    })
    .await;
}

/// No worker could send a heartbeat meanwhile, so none is declared dead for it.
#[tokio::test]
async fn a_server_that_comes_back_gives_every_worker_a_lease_to_beat_again() {
    let mut cluster = Cluster::start().await.unwrap();
    let mut side = Side::new(&cluster.server(), "protocol::restart").await;
    side.run("select rowlock.enqueue_v1('note')").await;
    let worker = side.join().await;
    let token = side.claim(&worker).await;
    side.run("update rowlock.worker set beat = beat - interval '1 day'")
        .await;
    cluster.crash().unwrap();
    cluster.resume().await.unwrap();
    side.pg = PgConnection::connect(&side.url()).await.unwrap();
    assert_eq!(side.text("select rowlock.recover_v1()::text").await, "0");
    side.run(&format!("select rowlock.beat_v1({worker})")).await;
    side.run(&format!("select rowlock.done_v1('{token}')")).await;
    // A lease after the server came back, a worker without a heartbeat is dead as usual.
    side.run("select rowlock.enqueue_v1('note')").await;
    side.claim(&worker).await;
    side.run("update rowlock.worker set beat = beat - interval '1 day', lease_ms = 1")
        .await;
    assert_eq!(side.text("select rowlock.recover_v1()::text").await, "1");
    end(side).await;
}
