-- Locks one breaker against claims of the kinds bound to it and against every other change.
-- Index: breaker_pkey.
-- only here: SQLite has one writer.
select
  b.name, b.state, b.forced, b.failures, b.trips, b.open_until, b.threshold, b.cooldown_us, b.cooldown_max_us, b.probes,
  b.version, b.changed_at, b.changed_by, b.reason,
  0 as probing, false as due, coalesce($2::timestamptz, clock_timestamp()) as now
from rowlock.breaker b
where b.name = $1
for update
