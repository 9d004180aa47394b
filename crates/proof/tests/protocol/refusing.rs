//! What the functions refuse, each with its own code and a text that says what to do.

use crate::protocol::stage::{Side, alone};

async fn put(side: &mut Side) {
    side.run("select rowlock.enqueue_v1('note', '{\"text\":\"x\"}')").await;
}

/// Every way to settle.
const SETTLES: [&str; 7] = [
    "select rowlock.done_v1(TOKEN)",
    "select rowlock.fail_v1(TOKEN, 'bad')",
    "select rowlock.fail_v1(TOKEN, 'bad', 5)",
    "select rowlock.defer_v1(TOKEN, 5)",
    "select rowlock.release_v1(TOKEN)",
    "select rowlock.retire_v1(TOKEN, 'bad')",
    "select rowlock.cancel_v1(TOKEN, 'bad')",
];

/// And with it whatever else the transaction wrote.
#[tokio::test]
async fn a_stale_token_is_refused_whatever_it_wants() {
    alone("a_stale_token_is_refused_whatever_it_wants", async |side| {
        put(side).await;
        side.run("create table business (n int)").await;
        let late = side.join().await;
        let stale = side.claim(&late).await;
        side.run("update rowlock.worker set beat = beat - interval '1 day', lease_ms = 1")
            .await;
        assert_eq!(side.text("select rowlock.recover_v1()::text").await, "1");
        let owner = side.join().await;
        let token = side.claim(&owner).await;
        assert_ne!(stale, token);
        for settle in SETTLES {
            let settle = settle.replace("TOKEN", &format!("'{stale}'"));
            side.run("begin; insert into business values (1)").await;
            let (code, said) = side.refused(&settle).await;
            assert_eq!(
                (code.as_str(), said.as_str()),
                ("RL001", "the lease of job 1 is lost"),
                "{settle}"
            );
            side.run("rollback").await;
        }
        assert_eq!(side.text("select count(*)::text from business").await, "0");
        let (code, said) = side.refused(&format!("select rowlock.beat_v1({late})")).await;
        assert_eq!(
            (code, said),
            ("RL001".into(), format!("worker {late} was declared dead; join again"))
        );
        let claim = format!("select rowlock.claim_v1({late}, 'default', '{{note}}')");
        assert_eq!(side.refused(&claim).await.0, "RL001");
        side.run(&format!(
            "begin; insert into business values (1); select rowlock.done_v1('{token}'); commit"
        ))
        .await;
        assert_eq!(side.text("select count(*)::text from business").await, "1");
        assert_eq!(
            side.refused(&format!("select rowlock.done_v1('{token}')")).await.0,
            "RL001",
            "only once"
        );
    })
    .await;
}

/// A settle that waits for another of the same token finds the lease gone.
#[tokio::test]
async fn of_two_settles_at_once_one_is_refused() {
    alone("of_two_settles_at_once_one_is_refused", async |side| {
        put(side).await;
        let worker = side.join().await;
        let token = side.claim(&worker).await;
        let done = format!("select rowlock.done_v1('{token}')");
        side.run(&format!("begin; {done}")).await;
        let waits = side.held_up(&format!("{done}::text")).await;
        side.run("commit").await;
        let refused = waits.await.unwrap().unwrap_err().into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("RL001"));
        assert_eq!(side.text("select count(*)::text from rowlock.outcome").await, "1");
    })
    .await;
}

/// A call, and what its refusal says.
const BAD: [(&str, &str); 54] = [
    (
        "enqueue_v1('n', '{}', '{\"if_retired\": \"refund\"}')",
        "if_retired: use a job as an object",
    ),
    (
        "enqueue_v1('n', '{}', '{\"group\": \"g\", \"group_stops\": 1}')",
        "group_stops: use true or false",
    ),
    (
        "enqueue_v1('n', '{}', '{\"group_stops\": true}')",
        "group_stops: use true or false, together with group",
    ),
    (
        "enqueue_v1('n', '{}', '{\"at\": \"2030-01-01T00:00:00+99\"}')",
        "is not a time, such as",
    ),
    ("done_v1('1-1-9999999999999999999')", "is not a token from a claim"),
    (
        "enqueue_v1('a b')",
        "kind: \"a b\" is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/",
    ),
    ("enqueue_v1(null)", "kind: \"\" is not a valid name; use 1 to 100"),
    (
        "enqueue_v1('n', '{}', '[]')",
        "options: use an object such as {\"queue\": \"mail\"}",
    ),
    (
        "enqueue_v1('n', '{}', '{\"que\": 1}')",
        "que: unknown option; the options are at, attempts",
    ),
    (
        "enqueue_v1('n', '{}', '{\"queue\": \"\"}')",
        "queue: \"\" is not a valid name; use 1 to 100",
    ),
    (
        "enqueue_v1('n', '{}', '{\"priority\": 6}')",
        "priority: 6 is not a whole number from 1 to 5",
    ),
    (
        "enqueue_v1('n', '{}', '{\"attempts\": \"3\"}')",
        "attempts: 3 is not a whole number from 1 to 10000",
    ),
    (
        "enqueue_v1('n', '{}', '{\"delay_ms\": 1.5}')",
        "delay_ms: 1.5 is not a whole number",
    ),
    (
        "enqueue_v1('n', '{}', '{\"at\": \"tomorrow\"}')",
        "at: \"tomorrow\" is not a time, such as",
    ),
    (
        "enqueue_v1('n', '{}', '{\"at\": \"2030-13-01T00:00:00Z\"}')",
        "at: \"2030-13-01T00:00:00Z\" is not a time",
    ),
    (
        "enqueue_v1('n', '{}', '{\"at\": \"2030-01-01T00:00:00\"}')",
        "is not a time, such as 2030-01-01T12:00:00Z",
    ),
    (
        "enqueue_v1('n', '{}', '{\"at\": \"2030-01-01T00:00:00Z\", \"delay_ms\": 1}')",
        "delay_ms: set together with at",
    ),
    (
        "enqueue_v1('n', '{}', '{\"key\": \"\"}')",
        "key: \"\" is not valid; use 1 to 250 bytes",
    ),
    (
        "enqueue_v1('n', '{}', '{\"key\": \"a\\u0007\"}')",
        "without control characters",
    ),
    (
        "enqueue_v1('n', '{}', '{\"hold\": \"open\"}')",
        "hold: set without a key; add key",
    ),
    (
        "enqueue_v1('n', '{}', '{\"key\": \"k\", \"hold\": \"long\"}')",
        "hold: \"long\" is not valid; use policy, open or ever",
    ),
    (
        "enqueue_v1('n', '{}', '{\"wait_limit_ms\": 1}')",
        "wait_limit_ms: set without a wait; add waits_for",
    ),
    (
        "enqueue_v1('n', '{}', '{\"group\": \"g\", \"waits_for\": \"w\"}')",
        "group: a job of a group cannot also wait",
    ),
    (
        "enqueue_v1('n', '{}', '{\"tags\": [\"a b\"]}')",
        "tags: use up to 32 names",
    ),
    (
        "enqueue_v1('n', '{}', '{\"on_trigger\": 1}')",
        "on_trigger: use true or false",
    ),
    (
        "enqueue_v1('n', '{}', '{\"trace\": \"x\"}')",
        "trace: not a valid traceparent, such as",
    ),
    (
        "enqueue_v1('n', '{}', '{\"if_retired\": {\"payload\": 1}}')",
        "kind: \"\" is not",
    ),
    (
        "enqueue_v1('n', '\"\\u0000\"')",
        "payload: a string contains a NUL character",
    ),
    (
        "enqueue_v1('n', (repeat('[', 101) || repeat(']', 101))::json)",
        "payload: nested deeper than 100 levels",
    ),
    (
        "enqueue_v1('n', to_json(repeat('x', 1048576)))",
        "payload: 1048578 bytes, at most 1048576",
    ),
    (
        "enqueue_v1('n', '{\"a\": [\"\\ud800\"]}')",
        "payload: a string contains half of a surrogate pair",
    ),
    (
        "enqueue_v1('n', '{}', '{\"key\": \"\\udc00\"}')",
        "options: a string contains half of a surrogate pair",
    ),
    (
        "enqueue_v1('n', '{}', '{\"queue\": \"\\u0000\"}')",
        "options: a string contains a NUL character",
    ),
    (
        "enqueue_many_v1('[{\"kind\": \"\\u0000\"}]')",
        "jobs: a string contains a NUL character",
    ),
    (
        "done_v1('1-1-1', null, '{\"kind\": \"\\u0000\"}')",
        "next: a string contains a NUL character",
    ),
    (
        "once_v1('k', null, '{\"hold\": \"\\u0000\"}')",
        "options: a string contains a NUL character",
    ),
    (
        "complete_v1('k', '\"\\ud800\"')",
        "answer: a string contains half of a surrogate pair",
    ),
    ("recover_v1(-1)", "most: -1 is not a whole number from 1"),
    ("recover_v1(null)", "most: <NULL> is not a whole number from 1"),
    ("claim_v1(WORKER, 'default', '{note@0}')", "kinds: give names such as"),
    (
        "claim_v1(WORKER, 'default', '{note@1000001}')",
        "kinds: give names such as",
    ),
    (
        "claim_v1(WORKER, 'default', '{note}', 1, '{strpe}')",
        "breakers: no breaker \"strpe\"; a breaker exists once",
    ),
    ("enqueue_many_v1('{}')", "jobs: use an array of objects"),
    ("enqueue_many_v1('[1]')", "jobs[0]: use an object with a kind"),
    ("join_v1('')", "name: use a name of 1 to 200 bytes"),
    (
        "join_v1('a', 10)",
        "lease_ms: 10 is not a whole number from 1000 to 3600000",
    ),
    (
        "claim_v1(WORKER, 'default', '{}')",
        "kinds: give names such as charge, or charge@2",
    ),
    (
        "claim_v1(WORKER, 'default', '{note}', 0)",
        "most: 0 is not a whole number from 1",
    ),
    ("done_v1('x')", "token: \"x\" is not a token from a claim"),
    ("done_v1(null)", "token: \"<NULL>\" is not a token from a claim"),
    ("defer_v1('1-1-1', -1)", "delay_ms: -1 is not a whole number"),
    ("fail_v1('1-1-1', 'x', -1)", "retry_ms: -1 is not a whole number"),
    ("once_v1(null)", "key: missing; give one"),
    (
        "pause_v1('mail', 'ann')",
        "'mail' is not a valid target; use queue:NAME, kind:NAME or group:NAME",
    ),
];

#[tokio::test]
async fn bad_input_is_named() {
    alone("bad_input_is_named", async |side| {
        let worker = side.join().await;
        for (call, expected) in BAD {
            let call = format!("select rowlock.{}", call.replace("WORKER", &worker));
            let (code, said) = side.refused(&call).await;
            assert_eq!(code, "RL012", "{call}: {said}");
            assert!(said.contains(expected), "{call}: {said}");
        }
        assert_eq!(side.text("select count(*)::text from rowlock.job").await, "0");
    })
    .await;
}

/// A pair is a character, and a backslash is one too.
#[tokio::test]
async fn whole_pairs_are_stored_as_they_are() {
    alone("whole_pairs_are_stored_as_they_are", async |side| {
        let given = r#"{"a":"\ud83d\ude00 \\ud800"}"#;
        side.run(&format!("select rowlock.enqueue_v1('note', '{given}')")).await;
        assert_eq!(side.text("select payload::text from rowlock.job").await, given);
    })
    .await;
}

/// One row that Rust cannot read as JSON does not spoil the list.
#[tokio::test]
async fn a_number_that_is_too_large_is_listed_as_text() {
    alone("a_number_that_is_too_large_is_listed_as_text", async |side| {
        side.run("select rowlock.enqueue_v1('note', '1e999')").await;
        put(side).await;
        let jobs = side.rowlock.observe().jobs(&Default::default()).await.unwrap();
        let mut payloads: Vec<String> = jobs.iter().map(|job| job.payload.to_string()).collect();
        payloads.sort();
        assert_eq!(payloads, ["\"1e999\"", "{\"text\":\"x\"}"]);
    })
    .await;
}

/// Later nobody could tell whether the work was kept: with autocommit there is no such transaction.
#[tokio::test]
async fn an_answer_belongs_to_the_transaction_that_took_the_key() {
    let case = "an_answer_belongs_to_the_transaction_that_took_the_key";
    alone(case, async |side| {
        let take = async |side: &mut Side, key: &str| {
            let once = format!("select slot::text from rowlock.once_v1('{key}')");
            side.text(&once).await
        };
        let answer = |key: &str, slot: &str| format!("select rowlock.answer_v1('{key}', '{slot}', '7')");
        let slot = take(side, "late").await;
        assert_eq!(side.refused(&answer("late", &slot)).await.0, "RL010");
        // Several in one transaction, one of them in a savepoint, and one that was taken back.
        side.run("begin").await;
        let first = take(side, "first").await;
        side.run("savepoint a").await;
        let second = take(side, "second").await;
        side.run("release a; savepoint b").await;
        let third = take(side, "third").await;
        side.run("rollback to b").await;
        side.run(&answer("first", &first)).await;
        side.run(&answer("second", &second)).await;
        side.run("savepoint c").await;
        assert_eq!(side.refused(&answer("third", &third)).await.0, "RL010");
        side.run("rollback to c; commit").await;
        assert_eq!(side.refused(&answer("first", &first)).await.0, "RL010", "once more");
        let held = "select string_agg(concat(key, ' ', answer), ', ' order by key) from rowlock.ledger";
        assert_eq!(side.text(held).await, "first 7, late , second 7");
    })
    .await;
}

/// A hostile search path changes nothing, and nobody calls them unasked.
#[tokio::test]
async fn every_function_is_the_callers_own_with_a_fixed_path() {
    alone("every_function_is_the_callers_own_with_a_fixed_path", async |side| {
        let odd = "select coalesce(string_agg(p.oid::regprocedure::text, ', '), 'none') from pg_proc p
            where p.pronamespace = 'rowlock'::regnamespace and p.proname like '%\\_v1'
              and (p.prosecdef or not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
                or has_function_privilege('public', p.oid, 'execute'))";
        assert_eq!(side.text(odd).await, "none");
        let count = "select (count(*) > 20)::text from pg_proc where proname like '%\\_v1'";
        assert_eq!(side.text(count).await, "true");
        side.run(
            "create schema hostile;
             create function hostile.nextval(text) returns bigint language sql as 'select 666::bigint';
             create function hostile.sha256(bytea) returns bytea language sql as 'select ''\\x00''::bytea';
             set search_path = hostile, pg_catalog",
        )
        .await;
        put(side).await;
        assert_eq!(side.text("select id::text from rowlock.job").await, "1");
    })
    .await;
}

/// A trigger enqueues with the row that fires it.
#[tokio::test]
async fn a_trigger_enqueues_with_its_row() {
    alone("a_trigger_enqueues_with_its_row", async |side| {
        side.run(
            "create table orders (id bigint primary key);
             create function charge_it() returns trigger language plpgsql as $body$
             begin
               perform rowlock.enqueue_v1(
                 'charge', json_build_object('order', new.id), json_build_object('key', 'charge:' || new.id));
               return new;
             end $body$;
             create trigger charge_it after insert on orders for each row execute function charge_it()",
        )
        .await;
        side.run("begin; insert into orders values (1); rollback").await;
        side.run("insert into orders select generate_series(1, 3)").await;
        let jobs = "select string_agg(payload::text, ' ' order by id) from rowlock.job";
        assert_eq!(side.text(jobs).await, "{\"order\" : 1} {\"order\" : 2} {\"order\" : 3}");
    })
    .await;
}
