-- Returns the place of each job and how often it was claimed; a job that is in no place is finished.
-- Index: rowlock_job, rowlock_ready, rowlock_waiting, rowlock_lease, rowlock_case_file by id.
select
  j.id, j.uid, j.queue, j.in_group,
  case
    when l.id is not null then 'leased'
    when r.id is not null then 'ready'
    when w.id is not null then 'waiting'
    when c.id is not null then 'case'
    else 'finished'
  end as state,
  coalesce(l.epoch, r.epoch, w.epoch, c.epoch, 0) as epoch,
  coalesce(r.due_at, w.due_at) as due_at,
  coalesce(r.due_at <= ?2, 0) as due
from (select distinct value as id from json_each(?1)) a
cross join rowlock_job j on j.id = a.id
left join rowlock_lease l on l.id = j.id
left join rowlock_ready r on r.id = j.id
left join rowlock_waiting w on w.id = j.id
left join rowlock_case_file c on c.id = j.id
