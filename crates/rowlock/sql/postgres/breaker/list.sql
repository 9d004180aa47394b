-- Lists the breakers with these names, or all: how many probes are under way, and whether one more may start.
-- Index: breaker_pkey; probe_pkey; lease_pkey.
select
  b.name, b.state, b.forced, b.failures, b.trips, b.open_until, b.threshold, b.cooldown_us, b.cooldown_max_us, b.probes,
  b.version, b.changed_at, b.changed_by, b.reason,
  (
    select count(*)::int from rowlock.probe p
    join rowlock.lease l on l.id = p.id and l.epoch = p.epoch and l.worker = p.worker
    where p.name = b.name
  ) as probing,
  coalesce(
    b.state = 'half_open'
      or (b.state = 'open' and not b.forced and b.open_until <= coalesce($2::timestamptz, clock_timestamp())),
    false
  ) as due
from rowlock.breaker b
where $1::text[] is null or b.name = any ($1)
order by b.name
