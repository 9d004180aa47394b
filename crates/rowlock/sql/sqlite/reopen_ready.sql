-- Puts a case's job back to ready with all its attempts, unless it waits for a name that is not completed; the epoch goes on rising, so no old token fits again.
-- Index: rowlock_case_file by id, rowlock_job by id, rowlock_completion by name; writes rowlock_ready_order.
-- no twin: postgresql moves the job inside reopen.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select f.id, f.queue_no, f.kind_no, 0, f.priority, ?2, f.epoch, 0, f.attempts_max
from rowlock_case_file f left join rowlock_job j on j.id = f.id
where f.id = ?1
  and (j.waits_for is null or exists (select 1 from rowlock_completion c where c.name = j.waits_for))
returning queue_no
