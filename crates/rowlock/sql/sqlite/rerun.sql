-- Files a finished job, to be reopened in the same transaction, so that it runs once more; says how it ended before.
-- Index: rowlock_job, rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id, rowlock_outcome_id.
insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
select j.id, o.epoch, 0, j.attempts_max, ?2, ?3, j.priority, o.outcome, ?4, '[]'
from rowlock_job j
join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id)
where j.id = ?1 and o.outcome in ('done', 'cancelled') and coalesce(j.expires_at > ?4, 1)
  and not exists (select 1 from rowlock_ready r where r.id = j.id)
  and not exists (select 1 from rowlock_waiting w where w.id = j.id)
  and not exists (select 1 from rowlock_lease l where l.id = j.id)
  and not exists (select 1 from rowlock_case_file c where c.id = j.id)
returning reason
