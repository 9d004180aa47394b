-- Lists jobs of a queue that are in ready for longer than the grace and unclaimed, from the end of the last page.
-- Index: rowlock_ready_order, from range to range, one page of each; rowlock_ready and rowlock_job by id.
-- These are the jobs that are due, or those with the one given due time.
with recursive lane as (
  select * from (
    select r.kind_no, r.alone, r.priority from rowlock_ready r where r.queue_no = ?3
    order by r.kind_no, r.alone, r.priority limit 1
  )
  union all
  select n.kind_no, n.alone, n.priority
  from lane l
  join rowlock_ready n on n.id = (
    select r.id from rowlock_ready r
    where r.queue_no = ?3 and (r.kind_no, r.alone, r.priority) > (l.kind_no, l.alone, l.priority)
    order by r.kind_no, r.alone, r.priority limit 1
  )
), page as materialized (
  select p.id, p.due_at, p.epoch
  from lane l
  cross join rowlock_ready p on p.id in (
    select r.id from rowlock_ready r
    where r.queue_no = ?3 and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
      and (r.due_at, r.id) > (?4, ?5) and r.due_at <= coalesce(?6, ?2)
    order by r.due_at, r.id limit +?7
  )
  order by p.due_at, p.id limit +?7
)
select p.id, j.uid, j.queue, j.in_group, 'ready' as state, p.epoch, p.due_at, p.due_at <= ?1 as due
from page p
cross join rowlock_job j on j.id = p.id
where j.created_at <= ?2
order by p.due_at, p.id
