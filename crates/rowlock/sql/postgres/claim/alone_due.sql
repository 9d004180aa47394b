-- Says whether a job that must be claimed alone has been due for longer than given in one of these ranges.
-- Index: ready_order.
select exists (
  select
  from unnest($1::bigint[], $2::bigint[], $3::smallint[]) as p (queue_no, kind_no, priority)
  cross join lateral (
    select r.id from rowlock.ready r
    where r.queue_no = p.queue_no and r.kind_no = p.kind_no and r.alone and r.priority = p.priority
      and r.due_at <= (select coalesce($4::timestamptz, clock_timestamp()) - $5 * interval '1 microsecond')
    limit 1
  ) due
)
