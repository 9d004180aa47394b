-- Creates a breaker if it is missing, and stores its workers' current settings; its state is not changed.
-- Index: breaker_pkey; breaker_log_pkey.
insert into rowlock.breaker (name, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by, version)
values (
  $1, $2, $3, $4, $5, coalesce($6::timestamptz, clock_timestamp()), $7,
  -- A breaker that was removed continues after the last version in its log.
  (select coalesce(max(l.version), 0) + 1 from rowlock.breaker_log l where l.name = $1)
)
on conflict (name) do update set
  threshold = excluded.threshold, cooldown_us = excluded.cooldown_us,
  cooldown_max_us = excluded.cooldown_max_us, probes = excluded.probes
where (breaker.threshold, breaker.cooldown_us, breaker.cooldown_max_us, breaker.probes)
  is distinct from (excluded.threshold, excluded.cooldown_us, excluded.cooldown_max_us, excluded.probes)
