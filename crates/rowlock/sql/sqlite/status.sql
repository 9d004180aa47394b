-- Counts per queue and kind over the four places a job can be.
-- Index: rowlock_ready_order, walked once without touching the table; one body per lane for its names.
with lane as (
  select
    r.queue_no, r.kind_no, min(r.id) as sample,
    count(*) filter (where r.due_at <= ?1) as due,
    count(*) filter (where r.due_at > ?1) as scheduled,
    0 as waiting, 0 as leased, 0 as cases,
    min(r.due_at) filter (where r.due_at <= ?1) as oldest
  from rowlock_ready r group by r.queue_no, r.kind_no
  union all
  select queue_no, kind_no, min(id), 0, 0, count(*), 0, 0, null from rowlock_waiting group by queue_no, kind_no
  union all
  select queue_no, kind_no, min(id), 0, 0, 0, count(*), 0, null from rowlock_lease group by queue_no, kind_no
  union all
  select queue_no, kind_no, min(id), 0, 0, 0, 0, count(*), null from rowlock_case_file group by queue_no, kind_no
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(l.due) as due,
  sum(l.scheduled) as scheduled,
  sum(l.waiting) as waiting,
  sum(l.leased) as leased,
  sum(l.cases) as cases,
  (?1 - min(l.oldest)) / 1000 as oldest_due_ms
from lane l left join rowlock_job j on j.id = l.sample
group by 1, 2 order by 1, 2
