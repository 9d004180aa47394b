-- Removes names completed before the given time that no job waits or waited for, a bounded number per call.
-- Index: rowlock_completion, all of it (completions are few); rowlock_waiting_name, rowlock_job_waits_for.
-- A name stays while a body names it: a case may be reopened, and a job in ready reads its answer later.
delete from rowlock_completion where name in (
  select c.name from rowlock_completion c
  where c.completed_at < ?1
    and not exists (select 1 from rowlock_waiting w where w.name = c.name)
    and not exists (select 1 from rowlock_job j where j.waits_for = c.name)
  limit +?2
)
