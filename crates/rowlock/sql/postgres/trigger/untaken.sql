-- Lists jobs of a queue that are in ready for longer than the grace and unclaimed, from the end of the last page.
-- Index: ready_order, from range to range, one page of each; job_pkey.
-- These are the jobs that are due, or those with the one given due time.
with recursive clock as materialized (
  select t.now, t.now - $2::bigint * interval '1 microsecond' as before
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) t
), lane as (
  (
    select r.kind_no, r.alone, r.priority from rowlock.ready r where r.queue_no = $3
    order by r.kind_no, r.alone, r.priority limit 1
  )
  union all
  select n.kind_no, n.alone, n.priority
  from lane l
  cross join lateral (
    select r.kind_no, r.alone, r.priority
    from rowlock.ready r
    where r.queue_no = $3 and (r.kind_no, r.alone, r.priority) > (l.kind_no, l.alone, l.priority)
    order by r.kind_no, r.alone, r.priority limit 1
  ) n
), page as materialized (
  select p.id, p.due_at, p.epoch
  from lane l
  cross join lateral (
    select r.id, r.due_at, r.epoch
    from rowlock.ready r
    where r.queue_no = $3 and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
      and (r.due_at, r.id) > ($4::timestamptz, $5::bigint)
      and r.due_at <= (select coalesce($6::timestamptz, c.before) from clock c)
    order by r.due_at, r.id limit $7
  ) p
  order by p.due_at, p.id limit $7
)
select p.id, j.uid, j.queue, j.in_group, 'ready' as state, p.epoch, p.due_at, p.due_at <= c.now as due
from page p
cross join clock c
cross join lateral (select b.uid, b.queue, b.in_group, b.created_at from rowlock.job b where b.id = p.id limit 1) j
where j.created_at <= c.before
order by p.due_at, p.id
