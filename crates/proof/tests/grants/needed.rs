//! No grant is there for nothing.

use proof::bed::postgres_servers;
use sqlx::Connection;

use crate::{
    grants::granted::{Granted, NEXT_ID, OPERATOR, PRODUCER, Run, WORKER, as_role, refused},
    steps::{catalog::script, enqueue, sql},
};

/// What each role must be able to do; taking any of its grants away must break one of these. What needs most comes
/// first.
const PARTS: [(&str, &[&str]); 3] = [
    (
        PRODUCER,
        &[
            ENQUEUES,
            sql!("session/schema_version"),
            sql!("enqueue/jobs"),
            NEXT_ID,
            sql!("ledger/take"),
            sql!("ledger/read"),
            sql!("ledger/take_over"),
            sql!("ledger/store"),
            sql!("session/lock_wait"),
            sql!("wait/complete"),
            sql!("guard/version"),
            sql!("guard/raise"),
            sql!("operate/rollouts"),
            sql!("key/put"),
            sql!("key/read"),
            sql!("key/take"),
            sql!("group/take"),
            sql!("group/share"),
            sql!("group/take_over"),
        ],
    ),
    (
        WORKER,
        &[
            ENQUEUES,
            SETTLES,
            sql!("session/schema_version"),
            sql!("worker/register"),
            sql!("worker/beat"),
            sql!("claim/take"),
            sql!("settle/attempts"),
            sql!("settle/one"),
            sql!("job/status"),
            sql!("worker/list"),
            sql!("settle/was_done"),
            sql!("enqueue/jobs"),
            sql!("group/take"),
            sql!("group/share"),
            sql!("group/take_over"),
            sql!("group/pass"),
            sql!("group/vacant"),
            sql!("group/mend"),
            sql!("group/lock_empty"),
            sql!("group/drop"),
            sql!("group/withdraw"),
            sql!("wait/complete"),
            NEXT_ID,
            sql!("ledger/take"),
            sql!("ledger/read"),
            sql!("ledger/take_over"),
            sql!("ledger/store"),
            sql!("effect/begin"),
            sql!("effect/end"),
            sql!("effect/known"),
            sql!("wait/due"),
            sql!("wait/completed"),
            sql!("wait/over"),
            sql!("wait/answer"),
            sql!("guard/body_lock_take"),
            sql!("guard/body_lock_release"),
            sql!("breaker/declare"),
            sql!("breaker/list"),
            sql!("breaker/lock"),
            sql!("breaker/try_lock"),
            sql!("breaker/set"),
            sql!("breaker/log_put"),
            sql!("claim/take_bound"),
            sql!("breaker/probe_sweep"),
            sql!("breaker/probe_count"),
            sql!("breaker/probe_put"),
            sql!("settle/resolve_lock"),
            sql!("settle/resolve_outcome"),
            sql!("worker/mark_dead"),
            sql!("worker/expire"),
            sql!("worker/lock_dead"),
            sql!("worker/forget_dead"),
            sql!("worker/leave"),
            sql!("worker/lock"),
            sql!("worker/leases"),
            sql!("claim/alone_due"),
            sql!("job/partitions"),
            sql!("job/drop_history"),
            sql!("job/prune"),
            sql!("key/put"),
            sql!("key/read"),
            sql!("key/take"),
            sql!("key/page"),
            sql!("ledger/page"),
            sql!("session/notify"),
            sql!("operate/audit_sweep"),
            sql!("guard/body_lock_sweep"),
            sql!("breaker/log_sweep"),
            sql!("case/sweep_errors"),
            sql!("case/sweep"),
            sql!("case/unnamed"),
            sql!("case/name"),
            sql!("wait/complete_sweep"),
            sql!("key/sweep"),
            sql!("ledger/sweep"),
            sql!("session/terminate"),
            sql!("guard/version"),
            sql!("guard/raise"),
            sql!("operate/rollouts"),
            sql!("operate/pauses"),
            sql!("trigger/jobs"),
            sql!("trigger/standing"),
            sql!("trigger/untaken"),
        ],
    ),
    (
        OPERATOR,
        &[
            VERBS,
            sql!("session/schema_version"),
            sql!("job/status"),
            sql!("worker/list"),
            sql!("job/list"),
            sql!("job/list_standing"),
            sql!("job/one"),
            sql!("job/chain"),
            sql!("job/attempts"),
            sql!("case/again"),
            sql!("case/close"),
            sql!("case/edit"),
            sql!("case/errors"),
            sql!("case/name"),
            sql!("case/note"),
            sql!("case/unnamed"),
            sql!("case/list"),
            sql!("case/alike"),
            sql!("case/of_error"),
            sql!("job/outcomes_since"),
            sql!("operate/audit_put_all"),
            sql!("session/vitals"),
            sql!("effect/one"),
            sql!("effect/list"),
            sql!("effect/doubtful"),
            sql!("effect/of_job"),
            sql!("effect/lock"),
            sql!("effect/resolve"),
            sql!("case/reopen"),
            sql!("job/delay"),
            sql!("job/cancel"),
            sql!("job/retire"),
            sql!("job/rerun"),
            sql!("wait/complete"),
            sql!("job/stand"),
            sql!("job/stand_chain"),
            sql!("operate/rollouts"),
            sql!("operate/rollout_set"),
            sql!("operate/pauses"),
            sql!("operate/pause"),
            sql!("operate/resume"),
            sql!("breaker/list"),
            sql!("breaker/log_list"),
            sql!("breaker/lock"),
            sql!("breaker/set"),
            sql!("breaker/log_put"),
            sql!("breaker/audit"),
            sql!("operate/audit_list"),
            "select at, actor, verb, id from rowlock.audit",
            "select no, head, paused from rowlock.job_group",
            "select * from rowlock.held, rowlock.stuck, rowlock.doubts, rowlock.case_errors, rowlock.dead_rows,
               rowlock.oldest_transaction",
            sql!("ledger/read"),
        ],
    ),
];

/// The functions for any language.
const ENQUEUES: &str = "do $body$
declare
  taken record;
begin
  perform rowlock.enqueue_v1('n', '{\"a\": 1}', '{\"key\": \"k\", \"group\": \"g\", \"tags\": [\"a\"],
    \"at\": \"2100-01-01T00:00:00Z\", \"if_retired\": {\"kind\": \"x\"}}');
  perform rowlock.enqueue_many_v1('[{\"kind\": \"n\"}]');
  select * into taken from rowlock.once_v1('k', '1');
  perform rowlock.answer_v1('k', taken.slot, '1');
  perform rowlock.wake_v1('q');
  perform rowlock.complete_v1('name', '1');
end $body$";
const SETTLES: &str = "do $body$
declare
  me bigint := rowlock.join_v1('w');
  settle text;
  token text;
begin
  perform rowlock.beat_v1(me);
  insert into rowlock.breaker (name, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by)
  values ('stripe', 1, 1, 1, 1, now(), 'w') on conflict do nothing;
  foreach settle in array array[
    'done_v1(%L)', 'fail_v1(%L, null)', 'defer_v1(%L, 1)', 'release_v1(%L)', 'retire_v1(%L, null)', 'cancel_v1(%L, null)'
  ] loop
    perform rowlock.enqueue_v1('n', '{}', '{\"attempts\": 2}');
    select c.token into token from rowlock.claim_v1(me, 'default', '{n}', 1, '{stripe}') c;
    execute format('select rowlock.' || settle, token);
  end loop;
  perform rowlock.enqueue_v1('m');
  perform rowlock.claim_v1(me, 'default', '{m}');
  perform rowlock.leave_v1(me);
  perform rowlock.recover_v1();
  -- What was lost is claimed alone.
  perform rowlock.claim_v1(rowlock.join_v1('w'), 'default', '{m}');
end $body$";
const VERBS: &str = "do $body$
begin
  perform rowlock.pause_v1('queue:q', 'ann');
  perform rowlock.resume_v1('queue:q', 'ann');
  perform rowlock.delay_v1(1, null, 'ann');
  perform rowlock.retire_job_v1(1, null, 'ann');
  perform rowlock.reopen_v1(1, 'ann');
  perform rowlock.cancel_job_v1(1, null, 'ann');
  perform rowlock.rerun_v1(1, null, 'ann');
  perform rowlock.end_waits('{1}', null);
end $body$";

/// Each grant of `$1` in the schema, as the statement that takes it away.
const REVOCATIONS: &str = "
    select format('revoke %s on %s rowlock.%I from %s', a.privilege_type,
      case c.relkind when 'S' then 'sequence' else 'table' end, c.relname, $1)
    from pg_class c cross join aclexplode(c.relacl) a
    where c.relnamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke %s (%I) on rowlock.%I from %s', a.privilege_type, t.attname, c.relname, $1)
    from pg_attribute t join pg_class c on c.oid = t.attrelid cross join aclexplode(t.attacl) a
    where c.relnamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke execute on function %s from %s', p.oid::regprocedure, $1)
    from pg_proc p cross join aclexplode(p.proacl) a
    where p.pronamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke %s on schema rowlock from %s', a.privilege_type, $1)
    from pg_namespace n cross join aclexplode(n.nspacl) a
    where n.nspname = 'rowlock' and a.grantee = $1::regrole";

/// Whether a statement can miss what is taken away: a function's right is missed by its callers, here or inside
/// another.
fn may_need(text: &str, revocation: &str) -> bool {
    let function = revocation.strip_prefix("revoke execute on function rowlock.");
    let name = function.and_then(|function| function.split('(').next());
    name.is_none_or(|name| text.starts_with("do ") || text.contains(name))
}

#[tokio::test]
async fn every_grant_is_needed_and_none_is_missing() {
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "every_grant_is_needed_and_none_is_missing").await;
        enqueue(&mut granted.root, 1, 1).await;
        for (role, part) in PARTS {
            for text in part {
                as_role(&mut granted.root, role, text, Run::Explain)
                    .await
                    .unwrap_or_else(|e| panic!("{role}: {text}: {e}"));
            }
            let revocations: Vec<String> = sqlx::query_scalar(REVOCATIONS)
                .bind(role)
                .fetch_all(&mut granted.root)
                .await
                .unwrap();
            assert!(revocations.len() >= 5, "{role} has only {revocations:?}");
            for revocation in revocations {
                let mut without = granted.root.begin().await.unwrap();
                script(&mut without, &revocation).await.unwrap();
                let mut missed = false;
                for text in part.iter().filter(|text| may_need(text, &revocation)) {
                    missed = refused(&as_role(&mut without, role, text, Run::Explain).await);
                    if missed {
                        break;
                    }
                }
                without.rollback().await.unwrap();
                assert!(
                    missed,
                    "{role} does its part after `{revocation}`: the grant is not needed"
                );
            }
        }
        granted.end(&server).await;
    }
}
