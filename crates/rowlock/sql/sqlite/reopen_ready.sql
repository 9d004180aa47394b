-- Puts a case's job back to ready with all its attempts; the epoch goes on rising, so no old token fits again.
-- Index: rowlock_case_file by id; writes rowlock_ready_order.
-- no twin: postgresql moves the job inside reopen.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select id, queue_no, kind_no, 0, priority, ?2, epoch, 0, attempts_max from rowlock_case_file where id = ?1
returning queue_no
