-- Removes names completed before the given time that no job waits or waited for, a bounded number per call.
-- Index: completion_pkey, all of it (completions are few); waiting_name, job_waits_for.
-- A name stays while a body names it: a case may be reopened, and a job in ready reads its answer later.
with old as materialized (
  select c.name
  from rowlock.completion c
  where c.completed_at < $1
    and not exists (select from rowlock.waiting w where w.name = c.name)
    and not exists (select from rowlock.job j where j.waits_for = c.name)
  limit $2
)
delete from rowlock.completion c using old o where c.name = o.name and c.completed_at < $1
