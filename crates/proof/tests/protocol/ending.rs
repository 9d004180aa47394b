//! Attempts end alike, and so do those that nobody ends.

use rowlock::atomic;
use rowlock::postgres::{Ctx, Tx, Worker};

use crate::protocol::stage::{Note, Side, alone, number, same};

/// The library's worker does what the note says; the functions do this with its token.
async fn ends_alike(case: &str, text: &str, settle: &str) {
    same(
        case,
        async |side| {
            assert!(side.rowlock.enqueue_now(Note::new(text)).await.unwrap().is_new());
            side.work(1).await;
        },
        async |side| {
            let put = format!(r#"select rowlock.enqueue_v1('note', '{{"text":"{text}"}}')"#);
            side.run(&put).await;
            let worker = side.join().await;
            let token = side.claim(&worker).await;
            side.run(&settle.replace("TOKEN", &format!("'{token}'"))).await;
        },
    )
    .await;
}

#[tokio::test]
async fn an_attempt_that_is_done() {
    ends_alike("an_attempt_that_is_done", "x", "select rowlock.done_v1(TOKEN)").await;
}

#[tokio::test]
async fn an_attempt_that_returns_something() {
    let settle = r#"select rowlock.done_v1(TOKEN, '{"ok": true}')"#;
    ends_alike("an_attempt_that_returns_something", "result", settle).await;
}

#[tokio::test]
async fn an_attempt_that_another_link_follows() {
    let settle =
        r#"select rowlock.done_v1(TOKEN, null, '{"kind": "note", "payload": {"text":"followed"}, "delay_ms": 0}')"#;
    same(
        "an_attempt_that_another_link_follows",
        async |side| {
            assert!(side.rowlock.enqueue_now(Note::new("next")).await.unwrap().is_new());
            side.work(2).await;
        },
        async |side| {
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"next"}')"#)
                .await;
            let worker = side.join().await;
            let token = side.claim(&worker).await;
            side.run(&settle.replace("TOKEN", &format!("'{token}'"))).await;
            let token = side.claim(&worker).await;
            side.run(&format!("select rowlock.done_v1('{token}')")).await;
        },
    )
    .await;
}

#[tokio::test]
async fn an_attempt_that_fails() {
    let settle = "select rowlock.fail_v1(TOKEN, 'bad', 3600000)";
    ends_alike("an_attempt_that_fails", "retry", settle).await;
}

#[tokio::test]
async fn an_attempt_that_is_put_off() {
    let settle = "select rowlock.defer_v1(TOKEN, 3600000)";
    ends_alike("an_attempt_that_is_put_off", "defer", settle).await;
}

#[tokio::test]
async fn an_attempt_that_gives_up() {
    let settle = "select rowlock.retire_v1(TOKEN, 'bad')";
    ends_alike("an_attempt_that_gives_up", "retire", settle).await;
}

#[tokio::test]
async fn an_attempt_that_cancels() {
    let settle = "select rowlock.cancel_v1(TOKEN, 'bad')";
    ends_alike("an_attempt_that_cancels", "cancel", settle).await;
}

/// The last one makes a case, with its compensation.
#[tokio::test]
async fn the_last_attempt_that_fails() {
    same(
        "the_last_attempt_that_fails",
        async |side| {
            let put = side.rowlock.enqueue_now(Note::new("retry")).attempts(1);
            let put = put.if_retired(Note::new("undo"));
            assert!(put.await.unwrap().is_new());
            side.work(2).await;
        },
        async |side| {
            side.run(
                r#"select rowlock.enqueue_v1('note', '{"text":"retry"}',
                     '{"attempts": 1, "if_retired": {"kind": "note", "payload": {"text":"undo"}}}')"#,
            )
            .await;
            let worker = side.join().await;
            let token = side.claim(&worker).await;
            let fail = format!("select rowlock.fail_v1('{token}', 'bad')");
            assert_eq!(side.text(&fail).await, "case");
            let token = side.claim(&worker).await;
            side.run(&format!("select rowlock.done_v1('{token}')")).await;
        },
    )
    .await;
}

/// A job whose expiry is past is not begun.
#[tokio::test]
async fn a_job_that_expired() {
    same(
        "a_job_that_expired",
        async |side| {
            let put = side.rowlock.enqueue_now(Note::new("x"));
            let put = put.expires("2001-01-01T00:00:00Z".parse().unwrap());
            assert!(put.await.unwrap().is_new());
            side.work(1).await;
        },
        async |side| {
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"x"}', '{"expires": "2001-01-01T00:00:00Z"}')"#)
                .await;
            let worker = side.join().await;
            let claim = format!("select count(*)::text from rowlock.claim_v1({worker}, 'default', '{{note}}')");
            assert_eq!(side.text(&claim).await, "0");
        },
    )
    .await;
}

/// Sets the last heartbeat of the job's worker to long ago.
const SILENCE: &str = "update rowlock.worker set beat = beat - interval '1 day', lease_ms = 1";

/// What a dead worker held comes back to run alone, or is a case when its attempts are used up.
#[tokio::test]
async fn what_a_dead_worker_held() {
    let hold = async |side: &mut Side| {
        side.run(
            r#"select rowlock.enqueue_v1('note', '{"text":"x"}');
               select rowlock.enqueue_v1('note', '{"text":"y"}', '{"attempts": 1}')"#,
        )
        .await;
        let worker = side.join().await;
        let claim = format!("select count(*)::text from rowlock.claim_v1({worker}, 'default', '{{note}}', 9)");
        assert_eq!(side.text(&claim).await, "2");
        side.run(SILENCE).await;
    };
    same(
        "what_a_dead_worker_held",
        async |side| {
            hold(side).await;
            // Recovery alone: there is no queue of this name.
            let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
            let worker = Worker::new(&side.rowlock).queue("none", 1).handle(atomic(handler));
            let recovered = number(side.url(), "select count(*) from rowlock.lease", 0);
            worker.run_until(recovered).await.unwrap();
        },
        async |side| {
            hold(side).await;
            assert_eq!(side.text("select rowlock.recover_v1()::text").await, "2");
            // It comes alone, to a worker that holds nothing.
            let worker = side.join().await;
            let claim = format!("select token from rowlock.claim_v1({worker}, 'default', '{{note}}', 9)");
            let token = side.text(&claim).await;
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"z"}')"#).await;
            let more = format!("select count(*)::text from rowlock.claim_v1({worker}, 'default', '{{note}}', 9)");
            assert_eq!(side.text(&more).await, "0", "nothing beside what runs alone");
            side.run(&format!(
                "select rowlock.release_v1('{token}');
                 delete from rowlock.ready where id = 3; delete from rowlock.job where id = 3;
                 delete from rowlock.outcome where outcome = 'released';
                 update rowlock.ready set epoch = 1"
            ))
            .await;
        },
    )
    .await;
}

/// Options of the next link are those of an enqueue.
#[tokio::test]
async fn a_next_link_with_options() {
    let settle = r#"select rowlock.done_v1(TOKEN, null, '{"kind": "note", "queue": "mail", "priority": 2, "attempts": 4,
        "tags": ["a"], "at": "2100-01-01T00:00:00Z"}')"#;
    alone("a_next_link_with_options", async |side| {
        side.run(r#"select rowlock.enqueue_v1('note', '{"text":"x"}')"#).await;
        let worker = side.join().await;
        let token = side.claim(&worker).await;
        side.run(&settle.replace("TOKEN", &format!("'{token}'"))).await;
        let next = "select concat_ws(' ', queue, priority, attempts_max, tags, chain, position, state, due_at at time zone 'utc')
            from rowlock.jobs where id = 2";
        assert_eq!(side.text(next).await, "mail 2 4 [\"a\"] 1 1 ready 2100-01-01 00:00:00");
    })
    .await;
}
