-- Clears the head of paused groups whose head was withdrawn.
-- Index: rowlock_job_group_paused, rowlock_waiting by id.
-- only here: PostgreSQL does so inside group/withdraw.sql.
update rowlock_job_group set head = null
where no in (select no from rowlock_job_group indexed by rowlock_job_group_paused where paused = 1)
  and exists (select 1 from rowlock_waiting w where w.id = head)
