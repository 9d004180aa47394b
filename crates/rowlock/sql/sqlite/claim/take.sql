-- Takes due jobs up to a queue's limit out of ready for a live worker, range by range in the given order.
-- Index: rowlock_ready_order, one contiguous scan per range; the join order is fixed, so the limit stops the scan.
delete from rowlock_ready where id in (
  select r.id
  from json_each(?1) p
  cross join rowlock_ready r indexed by rowlock_ready_order
  where r.queue_no = ?2
    and r.kind_no = p.value ->> 'kind_no'
    and r.alone = ?3
    and r.priority = p.value ->> 'priority'
    and (r.due_at, r.id) >= (p.value ->> 'from_due', p.value ->> 'from_id')
    and r.due_at <= ?4
    and exists (select 1 from rowlock_worker w where w.id = ?6 and w.dead = 0)
  limit +?5
)
returning id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority, due_at
