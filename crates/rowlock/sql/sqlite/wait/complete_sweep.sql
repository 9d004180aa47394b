-- Removes names that were completed before the given time and that no job waits or waited for, a bounded number at a time.
-- Index: rowlock_completion, all of it (completions are few); rowlock_waiting_name, rowlock_job_waits_for: a case may be reopened, and a job that is ready reads its answer later.
delete from rowlock_completion where name in (
  select c.name from rowlock_completion c
  where c.completed_at < ?1
    and not exists (select 1 from rowlock_waiting w where w.name = c.name)
    and not exists (select 1 from rowlock_job j where j.waits_for = c.name)
  limit +?2
)
