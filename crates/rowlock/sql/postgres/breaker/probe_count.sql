-- Counts the probes of a breaker that are under way; run it after breaker/probe_sweep.sql.
-- Index: probe_pkey.
select count(*)::int from rowlock.probe where name = $1
