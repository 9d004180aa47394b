-- Returns what is known about an effect, and whether the token holds.
-- Index: rowlock_lease by id, rowlock_effect (id, name).
select
  l.id is not null as held, e.no, e.state, e.epoch = ?2 and e.worker = ?3 as own, e.fingerprint, e.begun_at,
  e.reply, e.error
from (select ?1 as id) t
left join rowlock_lease l on l.id = t.id and l.epoch = ?2 and l.worker = ?3
left join rowlock_effect e on e.id = t.id and e.name = ?4
