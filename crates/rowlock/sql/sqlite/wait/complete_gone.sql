-- Ends the wait of jobs that just went to ready.
-- Index: rowlock_waiting_name, rowlock_completion by name.
-- only here: PostgreSQL moves them inside wait/complete.sql and enqueue/jobs.sql.
delete from rowlock_waiting where name in (
  select c.name
  from json_each(?1) n cross join rowlock_completion c on c.name = n.value ->> 'waits_for'
)
returning queue_no
