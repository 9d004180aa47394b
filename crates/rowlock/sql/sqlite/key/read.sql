-- Returns the holders of these keys: their jobs' places and last outcomes.
-- Index: the primary keys of rowlock_job_key, rowlock_lease, rowlock_ready, rowlock_case_file and rowlock_waiting,
-- rowlock_outcome_id.
select
  k.key, k.id, k.fingerprint, k.hold,
  coalesce(k.expires_at <= ?2, 0) as passed,
  case
    when l.id is not null then 'leased'
    when r.id is not null then 'ready'
    when c.id is not null then 'case'
    when w.id is not null then 'waiting'
    when o.id is not null then 'finished'
  end as state,
  o.outcome, o.result
from json_each(?1) d
cross join rowlock_job_key k on k.key = d.value
left join rowlock_lease l on l.id = k.id
left join rowlock_ready r on r.id = k.id
left join rowlock_case_file c on c.id = k.id
left join rowlock_waiting w on w.id = k.id
left join rowlock_outcome o on o.id = k.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = k.id)
