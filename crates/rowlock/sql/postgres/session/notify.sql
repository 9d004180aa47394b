-- Hints at new work in these queues; sent after the commit that made it, on a connection of its own.
-- Index: none.
-- no twin: sqlite has no channels; session/data_version.sql tells that another process wrote.
select count(pg_notify($1, q::text)) from unnest($2::bigint[]) as q
