//! Jobs and keys come in alike.

use jiff::Timestamp;
use rowlock::{BegunByHand, Group, Hold, Once};

use crate::protocol::stage::{HOUR, Note, same};

#[tokio::test]
async fn every_option_of_an_enqueue() {
    let far: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    same(
        "every_option_of_an_enqueue",
        async |side| {
            let rowlock = &side.rowlock;
            let put = rowlock.enqueue_now(Note::new("x"));
            assert!(put.await.unwrap().is_new());
            let put = rowlock.enqueue_now(Note::new("y")).queue("mail").priority(1);
            let put = put.attempts(3).tag("a").tag("b").after(HOUR).expires(far);
            assert!(put.await.unwrap().is_new());
            let put = rowlock.enqueue_now(Note::new("z")).at(far);
            let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let put = put.if_retired(Note::new("undo")).trace(trace);
            assert!(put.await.unwrap().is_new());
            let put = rowlock.enqueue_now(Note::new("w")).waits_for("approval:1").wait_limit(HOUR);
            assert!(put.await.unwrap().is_new());
            let put = rowlock.enqueue_now(Note::new("v")).waits_for("approval:2").expires(far);
            assert!(put.await.unwrap().is_new());
            let put = rowlock.enqueue_now(Note::new("u")).on_trigger();
            assert!(put.await.unwrap().is_new());
        },
        async |side| {
            side.run(
                r#"
                select rowlock.enqueue_v1('note', '{"text":"x"}');
                select rowlock.enqueue_v1('note', '{"text":"y"}', '{"queue": "mail", "priority": 1, "attempts": 3,
                  "tags": ["a", "b"], "delay_ms": 3600000, "expires": "2100-01-01T00:00:00Z"}');
                select rowlock.enqueue_v1('note', '{"text":"z"}', '{"at": "2100-01-01T00:00:00Z",
                  "if_retired": {"kind": "note", "payload": {"text":"undo"}},
                  "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}');
                select * from rowlock.enqueue_many_v1('[
                  {"kind": "note", "payload": {"text":"w"}, "waits_for": "approval:1", "wait_limit_ms": 3600000},
                  {"kind": "note", "payload": {"text":"v"}, "waits_for": "approval:2", "expires": "2100-01-01T00:00:00Z"},
                  {"kind": "note", "payload": {"text":"u"}, "on_trigger": true}]')"#,
            )
            .await;
        },
    )
    .await;
}

#[tokio::test]
async fn keys_by_their_request_and_hold() {
    // One request, however it is written.
    let request = r#"{"text":"é \"q\" \\ / \u0001 \ud83d\ude00","n":[1.0,1E5,{"b":null,"a":true}]}"#;
    let again =
        "{ \"n\" : [1.0, 1E5, {\"a\": true, \"b\": null}],\n \"text\": \"\\u00e9 \\\"q\\\" \\\\ \\/ \\u0001 😀\" }";
    let value = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    same(
        "keys_by_their_request_and_hold",
        async |side| {
            let rowlock = &side.rowlock;
            for (text, hold) in [(request, Hold::Policy), (again, Hold::Policy)] {
                let put = rowlock.enqueue_now(Note::new("a")).key("order:1").hold(hold);
                let put = put.fingerprint(&*value(text)).await.unwrap();
                assert_eq!(put.id(), 1.into());
            }
            for (key, hold) in [("b", Hold::WhileOpen), ("c", Hold::ForEver), ("d", Hold::For(HOUR))] {
                let put = rowlock.enqueue_now(Note::new("b")).key(key).hold(hold).await.unwrap();
                assert!(put.is_new());
            }
            let other = rowlock.enqueue_now(Note::new("other")).key("c").await;
            assert!(matches!(other, Err(rowlock::Error::KeyConflict { .. })), "{other:?}");
            // Done, and its key is free.
            side.work(4).await;
            let put = side
                .rowlock
                .enqueue_now(Note::new("later"))
                .key("b")
                .hold(Hold::WhileOpen);
            assert!(put.await.unwrap().is_new());
        },
        async |side| {
            // The payload is the request: the body is put right afterwards, so that the two can be compared.
            for text in [request, again] {
                let text = text.replace('\'', "''");
                let put =
                    format!(r#"select id::text from rowlock.enqueue_v1('note', '{text}', '{{"key": "order:1"}}')"#);
                assert_eq!(side.text(&put).await, "1");
            }
            side.run(
                r#"
                update rowlock.job set payload = '{"text":"a"}' where id = 1;
                select rowlock.enqueue_v1('note', '{"text":"b"}', '{"key": "b", "hold": "open"}');
                select rowlock.enqueue_v1('note', '{"text":"b"}', '{"key": "c", "hold": "ever"}');
                select rowlock.enqueue_v1('note', '{"text":"b"}', '{"key": "d", "hold_ms": 3600000}')"#,
            )
            .await;
            let other = r#"select rowlock.enqueue_v1('note', '{"text":"other"}', '{"key": "c"}')"#;
            assert_eq!(side.refused(other).await.0, "RL003");
            side.work(4).await;
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"later"}', '{"key": "b", "hold": "open"}')"#)
                .await;
        },
    )
    .await;
}

#[tokio::test]
async fn groups_in_their_order() {
    same(
        "groups_in_their_order",
        async |side| {
            for (text, stops) in [("x", false), ("retire", true), ("y", false)] {
                let group = Group::new("account:42");
                let group = if stops { group.stop_when_retired() } else { group };
                let put = side.rowlock.enqueue_now(Note::new(text)).group(group);
                assert!(put.await.unwrap().is_new());
            }
            side.work(2).await;
        },
        async |side| {
            side.run(
                r#"
                select rowlock.enqueue_v1('note', '{"text":"x"}', '{"group": "account:42"}');
                select rowlock.enqueue_v1('note', '{"text":"retire"}', '{"group": "account:42", "group_stops": true}');
                select rowlock.enqueue_v1('note', '{"text":"y"}', '{"group": "account:42"}')"#,
            )
            .await;
            let worker = side.join().await;
            let first = side.claim(&worker).await;
            side.run(&format!("select rowlock.done_v1('{first}')")).await;
            let second = side.claim(&worker).await;
            side.run(&format!("select rowlock.retire_v1('{second}', 'bad')")).await;
        },
    )
    .await;
}

#[tokio::test]
async fn what_happens_once() {
    same(
        "what_happens_once",
        async |side| {
            // Something for the comparison to see beside the ledger.
            side.rowlock.enqueue_now(Note::new("x")).after(HOUR).await.unwrap().id();
            let request = serde_json::json!({"b": 1, "a": 2});
            for first in [true, false] {
                let mut tx = sqlx::Connection::begin(&mut side.pg).await.unwrap();
                match side.rowlock.once(&mut tx, "hook:1").request(&request).await.unwrap() {
                    Once::First(slot) => {
                        assert!(first);
                        slot.store(&mut tx, &7).await.unwrap();
                    }
                    Once::Seen(answer) => assert_eq!((first, answer.get::<i64>().unwrap()), (false, 7)),
                }
                tx.commit().await.unwrap();
            }
        },
        async |side| {
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"x"}', '{"delay_ms": 3600000}')"#)
                .await;
            side.run(
                r#"
                begin;
                select rowlock.answer_v1('hook:1', o.slot, '7') from rowlock.once_v1('hook:1', '{"a": 2, "b": 1}') o where o.is_first;
                commit"#,
            )
            .await;
            let again = r#"select concat(is_first, ' ', answer) from rowlock.once_v1('hook:1', '{"b":1,"a":2}')"#;
            assert_eq!(side.text(again).await, "f 7");
            let other = side.refused("select rowlock.once_v1('hook:1', '{}')").await;
            assert_eq!(other, ("RL003".into(), "key \"hook:1\" is already used by a different request".into()));
            let again = "select rowlock.answer_v1('hook:1', o.slot, '8') from rowlock.once_v1('hook:1') o";
            assert_eq!(side.refused(again).await.0, "RL010", "a repeat has no slot");
            let elsewhere = "select rowlock.answer_v1('hook:2', now(), '1')";
            assert_eq!(side.refused(elsewhere).await.0, "RL010");
        },
    )
    .await;
}

#[tokio::test]
async fn a_name_that_is_completed() {
    same(
        "a_name_that_is_completed",
        async |side| {
            let wait = |text: &str| side.rowlock.enqueue_now(Note::new(text)).waits_for("approval:1");
            assert!(wait("x").await.unwrap().is_new());
            let mut pg = <sqlx::PgConnection as sqlx::Connection>::connect(&side.url())
                .await
                .unwrap();
            let answer = serde_json::json!({"yes": true});
            let completed = side
                .rowlock
                .complete(&mut BegunByHand::new(&mut pg), "approval:1", &answer)
                .await;
            let _moved = completed.unwrap();
            assert!(wait("y").await.unwrap().is_new());
        },
        async |side| {
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"x"}', '{"waits_for": "approval:1"}')"#)
                .await;
            let complete = r#"select rowlock.complete_v1('approval:1', '{"yes": true}')::text"#;
            assert_eq!(side.text(complete).await, "1");
            assert_eq!(side.text(complete).await, "", "once");
            side.run(r#"select rowlock.enqueue_v1('note', '{"text":"y"}', '{"waits_for": "approval:1"}')"#)
                .await;
        },
    )
    .await;
}
