-- Ends a hung handler's backend, so that it keeps no row lock, and says whether it was found outside any transaction; only one of this user's, and only while it still is that connection, or is in that transaction where a pooler lends it to many.
-- Index: none.
-- no twin: sqlite connections live in the process that would end them.
select a.xact_start is null and a.state = 'idle' as outside, pg_terminate_backend(a.pid) as ended
from pg_stat_activity a
where a.usename = current_user
  and (a.pid = $1 or $1 is null)
  and a.application_name = $2
