-- Pauses a queue or kind and notes who did it; workers look twice a second. No row: it was paused before.
-- Index: setting_pkey; writes audit_id.
with put as (
  insert into rowlock.setting (name, value, changed_at, changed_by)
  values ('pause:' || $1, '', coalesce($3::timestamptz, clock_timestamp()), $2)
  on conflict (name) do nothing
  returning name
)
insert into rowlock.audit (actor, verb, id, detail)
select $2, 'pause', 0, $1 from put
