//! No role can do another's part.

use proof::bed::postgres_servers;

use crate::{
    grants::granted::{Granted, OPERATOR, PRODUCER, Run, WORKER, as_role, refused},
    steps::sql,
};

/// What none of the roles may do.
const NOBODYS: [&str; 12] = [
    "create table rowlock.mine (id int)",
    "drop table rowlock.lease",
    "alter table rowlock.ready add column mine int",
    "truncate rowlock.outcome",
    "insert into rowlock.migration (version, name, oldest) values (99, 'mine', 99)",
    "update rowlock.job set payload = '{}'",
    "update rowlock.ready set due_at = now()",
    "update rowlock.lease set worker = 1",
    "update rowlock.outcome set outcome = 'done'",
    "delete from rowlock.outcome",
    "delete from rowlock.audit",
    "create or replace function rowlock.drop_history(before timestamptz) returns int language sql as 'select 1'",
];

/// What is another role's part.
const FORBIDDEN: [(&str, &str, &str); 55] = [
    (PRODUCER, "claim", sql!("claim/take")),
    (PRODUCER, "settle", sql!("settle/attempts")),
    (PRODUCER, "settle_one", sql!("settle/one")),
    (PRODUCER, "expire", sql!("worker/expire")),
    (PRODUCER, "register", sql!("worker/register")),
    (PRODUCER, "job", sql!("job/one")),
    (PRODUCER, "waits_over", sql!("wait/over")),
    (PRODUCER, "body_lock_take", sql!("guard/body_lock_take")),
    (PRODUCER, "reopen", sql!("case/reopen")),
    (PRODUCER, "breakers", sql!("breaker/list")),
    (PRODUCER, "breaker_set", sql!("breaker/set")),
    (PRODUCER, "partitions", sql!("job/partitions")),
    (PRODUCER, "effect_begin", sql!("effect/begin")),
    (PRODUCER, "verify", sql!("verify/uids")),
    (WORKER, "verify", sql!("verify/endings")),
    (WORKER, "reopen", sql!("case/reopen")),
    (WORKER, "effect_resolve", sql!("effect/resolve")),
    (WORKER, "an effect's key", "update rowlock.effect set key = 'mine'"),
    (OPERATOR, "effect_begin", sql!("effect/begin")),
    (OPERATOR, "effect_end", sql!("effect/end")),
    (PRODUCER, "turn a gate", sql!("operate/rollout_set")),
    (WORKER, "turn a gate", sql!("operate/rollout_set")),
    (PRODUCER, "pause", sql!("operate/pause")),
    (WORKER, "pause", sql!("operate/pause")),
    (WORKER, "pause a group", "update rowlock.job_group set paused = true"),
    (PRODUCER, "pass a turn on", sql!("group/pass")),
    (WORKER, "resume", sql!("operate/resume")),
    (WORKER, "the case", "update rowlock.case_file set reason = 'mine'"),
    (PRODUCER, "a payload", "select payload from rowlock.job"),
    (PRODUCER, "an error", "select error from rowlock.outcome"),
    (PRODUCER, "a reason", "select reason from rowlock.case_file"),
    (PRODUCER, "forget a key", "delete from rowlock.job_key"),
    (PRODUCER, "sweep_keys", sql!("key/sweep")),
    (OPERATOR, "job_key_put", sql!("key/put")),
    (OPERATOR, "sweep_keys", sql!("key/sweep")),
    (OPERATOR, "sweep_cases", sql!("case/sweep")),
    (
        WORKER,
        "the audit",
        "insert into rowlock.audit (actor, verb, id) values ('me', 'reopen', 1)",
    ),
    (WORKER, "a worker's name", "update rowlock.worker set name = 'me'"),
    (OPERATOR, "enqueue", sql!("enqueue/jobs")),
    (OPERATOR, "once_take", sql!("ledger/take")),
    (OPERATOR, "once_store", sql!("ledger/store")),
    (
        OPERATOR,
        "end a lease",
        "select rowlock.end_lease(1, 1, 1, 'cancelled', 'finished', 0, null)",
    ),
    (OPERATOR, "body_lock_take", sql!("guard/body_lock_take")),
    (OPERATOR, "breaker_declare", sql!("breaker/declare")),
    (OPERATOR, "claim", sql!("claim/take")),
    (OPERATOR, "claim_bound", sql!("claim/take_bound")),
    (OPERATOR, "probe_put", sql!("breaker/probe_put")),
    (OPERATOR, "settle", sql!("settle/attempts")),
    (OPERATOR, "settle_one", sql!("settle/one")),
    (OPERATOR, "raise a version", sql!("guard/raise")),
    (OPERATOR, "expire", sql!("worker/expire")),
    (OPERATOR, "beat", sql!("worker/beat")),
    (OPERATOR, "prune", sql!("job/prune")),
    (OPERATOR, "partitions", sql!("job/partitions")),
    (OPERATOR, "drop_history", sql!("job/drop_history")),
];

#[tokio::test]
async fn no_role_can_do_anothers_part() {
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "no_role_can_do_anothers_part").await;
        let everyone = [PRODUCER, WORKER, OPERATOR];
        for (role, what, text) in everyone
            .iter()
            .flat_map(|role| NOBODYS.iter().map(move |text| (*role, *text, *text)))
        {
            let said = as_role(&mut granted.root, role, text, Run::Really).await;
            assert!(refused(&said), "{role} may {what}: {said:?}");
        }
        for (role, what, text) in FORBIDDEN {
            let said = as_role(&mut granted.root, role, text, Run::Explain).await;
            assert!(refused(&said), "{role} may {what}: {said:?}");
        }
        let stranger = granted.login(None).await;
        for text in ["select from rowlock.jobs", "select rowlock.make_partitions(1, 1)"] {
            let said = as_role(&mut granted.root, &stranger, text, Run::Really).await;
            assert!(refused(&said), "a stranger may {text}: {said:?}");
        }
        granted.end(&server).await;
    }
}
