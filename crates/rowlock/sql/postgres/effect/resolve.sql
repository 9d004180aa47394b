-- Records what an operator found out about an effect, only while it is in doubt and its call is not under way.
-- Index: effect_pkey, lease_pkey.
-- This is the second half of resolving an effect, after effect/lock.sql.
with resolved as (
  update rowlock.effect e set
    state = $2, doubt = false, reply = $3::json, resolved_by = $4, ended_at = coalesce($5::timestamptz, clock_timestamp())
  where e.no = $1 and e.state in ('open', 'uncertain') and not (
    e.state = 'open'
    and exists (select from rowlock.lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker)
  )
  returning e.id, e.no, e.name, e.state
), noted as (
  insert into rowlock.audit (actor, verb, id, detail)
  select $4, 'resolve effect', id, format('effect %s "%s" is %s', no, name, state) from resolved
)
select id from resolved
