-- Returns what is known about an effect, and whether the token holds; runs after a write to it found no row.
-- Index: lease_pkey, effect_id_name_key.
select
  l.id is not null as held, e.no, e.state, e.epoch = $2 and e.worker = $3 as own, e.fingerprint, e.begun_at,
  e.reply::text as reply, e.error
from (select $1::bigint as id) t
left join rowlock.lease l on l.id = t.id and l.epoch = $2 and l.worker = $3
left join rowlock.effect e on e.id = t.id and e.name = $4
