-- Lists the worker processes and what each of them holds.
-- Index: none; one row per process.
select
  w.id, w.name, w.lease_ms, w.dead, w.started_at,
  (extract(epoch from coalesce($1::timestamptz, clock_timestamp()) - w.beat) * 1000)::bigint as beat_age_ms,
  (select count(*) from rowlock.lease l where l.worker = w.id) as leases
from rowlock.worker w order by w.started_at, w.id
