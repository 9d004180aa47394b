-- Counts the probes of a breaker that are under way; run it after breaker/probe_sweep.sql.
-- Index: rowlock_probe by name.
select count(*) from rowlock_probe where name = ?1
