-- Counts the rows of an adopted table that are claimed as probes of a breaker.
-- Index: the table's index of claimed rows.
-- only here: tables are adopted on PostgreSQL only.
select count(*)::int from {table} t where t.{claimed_at} is not null and not t.{inactive} and right(t.{claimed_by}, 8) = ' (probe)'
