-- Files waiting jobs that are retired by their limit, with their whole history; the end of the wait is in the log already.
-- Index: rowlock_waiting by id, rowlock_outcome_id.
-- no twin: postgresql files the case inside wait/over.sql.
insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
select
  w.id, w.epoch + 1, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority, v.value ->> 'reason', ?2,
  (
    select json_group_array(json_object(
      'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
      'started_at', strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
      'ended_at', strftime('%Y-%m-%dT%H:%M:%S', o.ended_at / 1000000, 'unixepoch') || printf('.%06dZ', o.ended_at % 1000000),
      'error', o.error) order by o.epoch)
    from rowlock_outcome o where o.id = w.id
  )
from json_each(?1) v cross join rowlock_waiting w on w.id = v.value ->> 'id'
where w.limit_ends = 'retired'
