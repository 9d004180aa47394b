-- Lists the leases of dead workers, for the settle statements to end.
-- Index: none on lease by worker (the table is small); rowlock_worker by id, rowlock_job by id.
select l.id, l.epoch, l.worker, l.attempt, l.attempts_max, l.queue_no, coalesce(j.kind, '') as kind, coalesce(j.queue, '') as queue, w.beat,
  case when j.group_stops = 0 then j.group_no end as group_no
from rowlock_lease l
cross join rowlock_worker w on w.id = l.worker
left join rowlock_job j on j.id = l.id
where w.dead = 1
limit +?1
