-- Lists the breakers with these names, or all: how many probes are under way, and whether one more may start.
-- Index: rowlock_breaker by name; rowlock_probe by name; rowlock_lease by id.
select
  b.name, b.state, b.forced, b.failures, b.trips, b.open_until, b.threshold, b.cooldown_us, b.cooldown_max_us, b.probes,
  b.version, b.changed_at, b.changed_by, b.reason,
  (
    select count(*) from rowlock_probe p
    join rowlock_lease l on l.id = p.id and l.epoch = p.epoch and l.worker = p.worker
    where p.name = b.name
  ) as probing,
  coalesce(b.state = 'half_open' or (b.state = 'open' and b.forced = 0 and b.open_until <= ?2), 0) as due
from rowlock_breaker b
where ?1 is null or b.name in (select value from json_each(?1))
order by b.name
