-- Says whether a job that must be claimed alone has been due for longer than given in one of these ranges.
-- Index: rowlock_ready_order.
select exists (
  select 1
  from json_each(?1) p
  cross join rowlock_ready r indexed by rowlock_ready_order
  where r.queue_no = p.value ->> 'queue_no'
    and r.kind_no = p.value ->> 'kind_no'
    and r.alone = 1
    and r.priority = p.value ->> 'priority'
    and r.due_at <= ?2
)
