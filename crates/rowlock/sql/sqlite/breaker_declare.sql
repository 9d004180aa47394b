-- Makes sure that a breaker is there, with what its workers say of it now; where it stands is left alone.
-- Index: rowlock_breaker by name.
insert into rowlock_breaker (name, threshold, cooldown_us, cooldown_max_us, probes, changed_at, changed_by)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (name) do update set
  threshold = excluded.threshold, cooldown_us = excluded.cooldown_us,
  cooldown_max_us = excluded.cooldown_max_us, probes = excluded.probes
