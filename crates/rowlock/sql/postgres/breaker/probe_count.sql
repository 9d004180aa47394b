-- How many probes of a breaker are under way, once those that are none any more were removed.
-- Index: probe_pkey.
select count(*)::int from rowlock.probe where name = $1
