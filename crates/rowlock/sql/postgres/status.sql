-- Counts per queue and kind over the four places a job can be.
-- Index: none; reads the narrow tables once, and one body per lane for its names.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as now
), lane as (
  select
    r.queue_no, r.kind_no, min(r.id) as sample,
    count(*) filter (where r.due_at <= c.now) as due,
    count(*) filter (where r.due_at > c.now) as scheduled,
    0::bigint as waiting, 0::bigint as leased, 0::bigint as cases,
    min(r.due_at) filter (where r.due_at <= c.now) as oldest
  from rowlock.ready r cross join clock c group by 1, 2
  union all
  select queue_no, kind_no, min(id), 0, 0, count(*), 0, 0, null from rowlock.waiting group by 1, 2
  union all
  select queue_no, kind_no, min(id), 0, 0, 0, count(*), 0, null from rowlock.lease group by 1, 2
  union all
  select queue_no, kind_no, min(id), 0, 0, 0, 0, count(*), null from rowlock.case_file group by 1, 2
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(l.due)::bigint as due,
  sum(l.scheduled)::bigint as scheduled,
  sum(l.waiting)::bigint as waiting,
  sum(l.leased)::bigint as leased,
  sum(l.cases)::bigint as cases,
  (extract(epoch from max(c.now) - min(l.oldest)) * 1000)::bigint as oldest_due_ms
from lane l cross join clock c left join rowlock.job j on j.id = l.sample
group by 1, 2 order by 1, 2
