-- Ends a hung handler's backend, so that it keeps no row lock; only one of this user's, and only while it still is that connection.
-- Index: none.
-- no twin: sqlite connections live in the process that would end them.
select pg_terminate_backend(pid) from pg_stat_activity
where pid = $1 and usename = current_user and application_name = $2
