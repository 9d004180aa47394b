-- Hints at new work in these queues; sent after the commit that made it, on a connection of its own.
-- Index: none.
select count(pg_notify($1, q::text)) from unnest($2::bigint[]) as q
