-- Files settled jobs that are given up on, with their whole history; the last attempt is in the log already.
-- Index: rowlock_lease by id, rowlock_outcome_id.
-- no twin: postgresql files the case inside settle/attempts.sql.
insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
select
  l.id, l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority,
  coalesce(s.value ->> 'error', s.value ->> 'outcome'), ?2,
  (
    select json_group_array(json_object(
      'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
      'started_at', strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
      'ended_at', strftime('%Y-%m-%dT%H:%M:%S', o.ended_at / 1000000, 'unixepoch') || printf('.%06dZ', o.ended_at % 1000000),
      'error', o.error) order by o.epoch)
    from rowlock_outcome o where o.id = l.id
  )
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
where s.value ->> 'place' = 'case'
