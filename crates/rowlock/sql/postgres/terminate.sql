-- Ends a hung handler's backend, so that it keeps no row lock, and says whether it was found outside any transaction; only one of this user's, and only while it still is that connection.
-- Index: none.
-- no twin: sqlite connections live in the process that would end them.
select a.xact_start is null and a.state = 'idle' as outside, pg_terminate_backend(a.pid) as ended
from pg_stat_activity a
where a.pid = $1 and a.usename = current_user and a.application_name = $2
