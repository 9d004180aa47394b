-- Lists the worker processes and what each of them holds.
-- Index: none; one row per process.
select
  w.id, w.name, w.lease_ms, w.dead, w.started_at,
  (?1 - w.beat) / 1000 as beat_age_ms,
  (select count(*) from rowlock_lease l where l.worker = w.id) as leases
from rowlock_worker w order by w.started_at, w.id
