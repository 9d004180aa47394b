-- Sends a notification about new work in these queues, after the commit, on a separate connection.
-- Index: none.
-- only here: SQLite has no channels; session/data_version.sql shows that another process wrote.
select count(pg_notify($1, q::text)) from unnest($2::bigint[]) as q
