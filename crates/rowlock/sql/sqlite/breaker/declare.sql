-- Creates a breaker if it is missing, and stores its workers' current settings; its state is not changed.
-- Index: rowlock_breaker by name; rowlock_breaker_log by name and version.
insert into rowlock_breaker (name, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by, version)
values (
  ?1, ?2, ?3, ?4, ?5, ?6, ?7,
  -- A breaker that was removed continues after the last version in its log.
  (select coalesce(max(l.version), 0) + 1 from rowlock_breaker_log l where l.name = ?1)
)
on conflict (name) do update set
  threshold = excluded.threshold, cooldown_us = excluded.cooldown_us,
  cooldown_max_us = excluded.cooldown_max_us, probes = excluded.probes
