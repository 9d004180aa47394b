-- Makes groups vacant whose head is over and never passed its turn on; the sweep then fills them.
-- Index: job_group, all of it; ready_id, lease_pkey, waiting_pkey, case_file_pkey, job_pkey.
-- This happens if the head's body was gone, or if an older binary settled it.
with stuck as materialized (
  select g.no, g.head
  from rowlock.job_group g
  where not g.vacant
    and not exists (select from rowlock.ready r where r.id = g.head)
    and not exists (select from rowlock.lease l where l.id = g.head)
    and not exists (
      select from rowlock.case_file c join rowlock.job j on j.id = c.id where c.id = g.head and j.group_stops
    )
  limit $1
)
-- Only while the head is still the one that was read.
update rowlock.job_group g set head = null
from stuck s
where g.no = any (array[s.no]) and g.head = s.head
