-- Ends the wait of the jobs that just went to ready.
-- Index: rowlock_job_group by no, rowlock_waiting by id.
-- only here: PostgreSQL moves them inside rowlock.pass_turns.
delete from rowlock_waiting where id in (
  select g.head from json_each(?1) u cross join rowlock_job_group g on g.no = u.value ->> 'no'
)
returning queue_no
