-- Returns the place of each job and how often it was claimed; a job that is in no place is finished.
-- Index: job_pkey, ready_id, waiting_pkey, lease_pkey, case_file_pkey.
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
  coalesce(r.due_at <= coalesce($1::timestamptz, clock_timestamp()), false) as due
from rowlock.job j
left join rowlock.lease l on l.id = j.id
left join rowlock.ready r on r.id = j.id
left join rowlock.waiting w on w.id = j.id
left join rowlock.case_file c on c.id = j.id
where j.id = any($2::bigint[])
