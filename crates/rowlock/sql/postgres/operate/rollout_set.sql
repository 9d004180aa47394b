-- Sets a rollout's percentage and records who did it; workers check every half second.
-- Index: setting_pkey; writes audit_id.
with noted as (
  insert into rowlock.audit (actor, verb, id, detail) values ($3, 'rollout', 0, $1 || ' ' || $2)
)
insert into rowlock.setting (name, value, changed_at, changed_by)
values ('rollout:' || $1, $2, coalesce($4::timestamptz, clock_timestamp()), $3)
on conflict (name) do update set value = excluded.value, changed_at = excluded.changed_at, changed_by = excluded.changed_by
