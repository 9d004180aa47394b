-- How many probes of a breaker are under way, once those that are none any more were removed.
-- Index: rowlock_probe by name.
select count(*) from rowlock_probe where name = ?1
