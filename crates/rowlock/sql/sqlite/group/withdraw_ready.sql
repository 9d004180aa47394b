-- Removes the jobs just withdrawn from ready.
-- Index: rowlock_job_group_paused, rowlock_ready by id.
-- only here: PostgreSQL removes them inside group/withdraw.sql.
delete from rowlock_ready where id in (
  select head from rowlock_job_group indexed by rowlock_job_group_paused where paused = 1
)
