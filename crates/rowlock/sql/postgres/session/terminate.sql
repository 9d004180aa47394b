-- Ends a hung handler's backend, so that it keeps no row lock; says whether it was outside any transaction.
-- Index: none.
-- It ends only a backend of this user, and only while it still is that connection. If a pooler shares the backend, it
-- must be in that transaction.
-- only here: SQLite connections live in the process that would end them.
select a.xact_start is null and a.state = 'idle' as outside, pg_terminate_backend(a.pid) as ended
from pg_stat_activity a
where a.usename = current_user
  and (a.pid = $1 or $1 is null)
  and a.application_name = $2
