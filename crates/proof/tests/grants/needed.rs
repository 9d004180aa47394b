//! No grant is there for nothing.

use proof::bed::postgres_servers;
use sqlx::Connection;

use crate::{
    grants::granted::{Granted, NEXT_ID, OPERATOR, PRODUCER, Run, WORKER, as_role, refused},
    steps::{catalog::script, enqueue, sql},
};

/// What each role must be able to do; taking any of its grants away must break one of these. What needs most comes first.
const PARTS: [(&str, &[&str]); 3] = [
    (
        PRODUCER,
        &[
            ENQUEUES,
            sql!("schema_version"),
            sql!("enqueue"),
            NEXT_ID,
            sql!("once_take"),
            sql!("once_read"),
            sql!("once_take_over"),
            sql!("once_store"),
            sql!("lock_wait"),
            sql!("enqueue_waiting"),
            sql!("complete"),
            sql!("guard_version"),
            sql!("guard_raise"),
            sql!("rollouts"),
            sql!("job_key_put"),
            sql!("job_key_read"),
            sql!("job_key_take"),
            sql!("group_take"),
            sql!("group_share"),
            sql!("group_take_over"),
            sql!("enqueue_grouped"),
        ],
    ),
    (
        WORKER,
        &[
            ENQUEUES,
            SETTLES,
            sql!("schema_version"),
            sql!("register"),
            sql!("beat"),
            sql!("claim"),
            sql!("settle"),
            sql!("settle_done"),
            sql!("settle_one"),
            sql!("status"),
            sql!("workers"),
            sql!("settle_turns"),
            sql!("was_done"),
            sql!("enqueue"),
            sql!("enqueue_waiting"),
            sql!("enqueue_grouped"),
            sql!("group_take"),
            sql!("group_share"),
            sql!("group_take_over"),
            sql!("group_pass"),
            sql!("group_vacant"),
            sql!("group_mend"),
            sql!("group_lock_empty"),
            sql!("group_drop"),
            sql!("group_withdraw"),
            sql!("complete"),
            NEXT_ID,
            sql!("once_take"),
            sql!("once_read"),
            sql!("once_take_over"),
            sql!("once_store"),
            sql!("compensate"),
            sql!("effect_begin"),
            sql!("effect_end"),
            sql!("effect_known"),
            sql!("waits_due"),
            sql!("waits_completed"),
            sql!("waits_over"),
            sql!("answer"),
            sql!("body_lock_take"),
            sql!("body_lock_release"),
            sql!("breaker_declare"),
            sql!("breakers"),
            sql!("breaker_lock"),
            sql!("breaker_try"),
            sql!("breaker_set"),
            sql!("breaker_logged"),
            sql!("claim_bound"),
            sql!("probe_sweep"),
            sql!("probe_count"),
            sql!("probe_put"),
            sql!("resolve_lock"),
            sql!("resolve_outcome"),
            sql!("mark_dead"),
            sql!("expire"),
            sql!("lock_dead"),
            sql!("forget_dead"),
            sql!("leave"),
            sql!("lock_worker"),
            sql!("own_leases"),
            sql!("alone_due"),
            sql!("partitions"),
            sql!("drop_history"),
            sql!("prune"),
            sql!("job_key_put"),
            sql!("job_key_read"),
            sql!("job_key_take"),
            sql!("keys_page"),
            sql!("ledger_page"),
            sql!("notify"),
            sql!("sweep_audit"),
            sql!("sweep_body_locks"),
            sql!("sweep_breaker_log"),
            sql!("sweep_case_errors"),
            sql!("sweep_cases"),
            sql!("case_unnamed"),
            sql!("case_name"),
            sql!("sweep_completions"),
            sql!("sweep_keys"),
            sql!("sweep_ledger"),
            sql!("terminate"),
            sql!("guard_version"),
            sql!("guard_raise"),
            sql!("rollouts"),
            sql!("pauses"),
            sql!("trigger"),
            sql!("standing"),
            sql!("untaken"),
        ],
    ),
    (
        OPERATOR,
        &[
            VERBS,
            sql!("schema_version"),
            sql!("status"),
            sql!("workers"),
            sql!("jobs"),
            sql!("jobs_standing"),
            sql!("job"),
            sql!("chain"),
            sql!("attempts"),
            sql!("case_again"),
            sql!("case_close"),
            sql!("case_edit"),
            sql!("case_errors"),
            sql!("case_name"),
            sql!("case_newest"),
            sql!("case_note"),
            sql!("case_unnamed"),
            sql!("cases"),
            sql!("cases_alike"),
            sql!("cases_of_error"),
            sql!("outcomes_since"),
            sql!("note_deed"),
            sql!("vitals"),
            sql!("effect"),
            sql!("effects"),
            sql!("effects_doubtful"),
            sql!("effects_of"),
            sql!("effect_lock"),
            sql!("effect_resolve"),
            sql!("reopen"),
            sql!("delay"),
            sql!("cancel"),
            sql!("retire"),
            sql!("rerun"),
            sql!("complete"),
            sql!("stand"),
            sql!("stand_chain"),
            sql!("rollouts"),
            sql!("set_rollout"),
            sql!("pauses"),
            sql!("pause"),
            sql!("resume"),
            sql!("breakers"),
            sql!("breaker_log"),
            sql!("breaker_lock"),
            sql!("breaker_set"),
            sql!("breaker_logged"),
            sql!("breaker_audit"),
            sql!("audit_read"),
            "select at, actor, verb, id from rowlock.audit",
            "select no, head, paused from rowlock.job_group",
            "select * from rowlock.held, rowlock.stuck, rowlock.doubts, rowlock.case_errors, rowlock.dead_rows,
               rowlock.oldest_transaction",
            sql!("once_read"),
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
  perform rowlock.retire_v1(1, null, 'ann');
  perform rowlock.reopen_v1(1, 'ann');
  perform rowlock.cancel_v1(1, null, 'ann');
  perform rowlock.rerun_v1(1, null, 'ann');
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

/// Whether a statement can miss what is taken away: a function's right is missed by who calls it, here or inside another.
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
