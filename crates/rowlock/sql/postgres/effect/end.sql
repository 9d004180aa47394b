-- Records how an outside call ended, only while the token holds and nobody has recorded an end before; else no row, and effect/known.sql says why.
-- Index: lease_pkey, effect_id_name_key. The lease is locked, so that recovery cannot end it until this has committed.
update rowlock.effect e set
  -- That this call did not happen says nothing of an earlier one.
  state = case when $5 = 'undone' and e.doubt then 'uncertain' else $5 end, reply = $6::json, error = $7, ended_at = coalesce($8::timestamptz, clock_timestamp()),
  epoch = l.epoch, worker = l.worker
from (select id, epoch, worker from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for share) l
where e.id = l.id and e.name = $4 and e.state in ('open', 'uncertain')
returning e.no
