-- Stores when each error of the cases just named was first and last seen.
-- Index: rowlock_case_error by no.
-- only here: PostgreSQL does it in case/name.sql; SQLite cannot write two tables in one statement.
insert into rowlock_case_error as e (no, error, first_seen, last_seen, seen)
select u.value ->> 'no', min(u.value ->> 'error'), min(u.value ->> 'at'), max(u.value ->> 'at'), count(*)
from json_each(?1) u where true group by 1
on conflict (no) do update
set first_seen = min(e.first_seen, excluded.first_seen), last_seen = max(e.last_seen, excluded.last_seen),
  seen = e.seen + excluded.seen
