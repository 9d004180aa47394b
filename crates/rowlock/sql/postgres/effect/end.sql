-- Records how an external call ended, only while the token holds and no end is recorded yet.
-- Index: lease_pkey, effect_id_name_key. The lease is locked, so recovery cannot end it before this commits.
-- Otherwise it returns no row, and effect/known.sql says why.
update rowlock.effect e set
  -- If this call did not happen, an earlier call still may have happened.
  state = case when $5 = 'undone' and e.doubt then 'uncertain' else $5 end, reply = $6::json, error = $7, ended_at = coalesce($8::timestamptz, clock_timestamp()),
  epoch = l.epoch, worker = l.worker
from (select id, epoch, worker from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for share) l
where e.id = l.id and e.name = $4 and e.state in ('open', 'uncertain')
returning e.no
