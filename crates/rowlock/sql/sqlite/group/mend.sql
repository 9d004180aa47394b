-- Lists the groups whose head is over and never passed its turn on.
-- Index: rowlock_job_group, all of it; rowlock_ready, rowlock_lease, rowlock_case_file and rowlock_job by id.
-- This happens if the head's body was gone, or if an older binary settled it.
select g.no, g.head
from rowlock_job_group g
where g.head is not null
  and not exists (select 1 from rowlock_ready r where r.id = g.head)
  and not exists (select 1 from rowlock_lease l where l.id = g.head)
  and not exists (
    select 1 from rowlock_case_file c join rowlock_job j on j.id = c.id where c.id = g.head and j.group_stops = 1
  )
limit +?1
