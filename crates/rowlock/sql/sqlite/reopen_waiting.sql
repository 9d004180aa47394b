-- Lets a case's job wait again while the name it waits for is not completed.
-- Index: rowlock_case_file by id, rowlock_job by id, rowlock_completion by name.
-- no twin: postgresql moves the job inside reopen.sql.
insert into rowlock_waiting (
  id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
)
select f.id, j.waits_for, f.queue_no, f.kind_no, f.priority, ?2, f.epoch, 0, f.attempts_max, j.expires_at, 'cancelled', ?2
from rowlock_case_file f join rowlock_job j on j.id = f.id
where f.id = ?1
  and j.waits_for is not null and not exists (select 1 from rowlock_completion c where c.name = j.waits_for)
returning queue_no
