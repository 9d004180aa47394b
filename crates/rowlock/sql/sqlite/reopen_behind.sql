-- Lets a case's job wait for its turn again, with all its attempts; the epoch goes on rising, so no old token fits again.
-- Index: rowlock_case_file by id; writes rowlock_waiting_group.
insert into rowlock_waiting (
  id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
)
select f.id, f.queue_no, f.kind_no, f.priority, ?2, f.epoch, 0, f.attempts_max, 'cancelled', ?2, ?3
from rowlock_case_file f
where f.id = ?1
returning queue_no
