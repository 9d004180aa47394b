-- Moves the jobs that wait for one of these names to ready, if the name is completed.
-- Index: rowlock_waiting_name, rowlock_completion by name; writes rowlock_ready_order. Runs before
-- wait/complete_gone.sql, which ends their wait.
-- only here: PostgreSQL moves them inside wait/complete.sql and enqueue/jobs.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select w.id, w.queue_no, w.kind_no, 0, w.priority, max(w.due_at, ?2), w.epoch, w.attempt, w.attempts_max
from (select distinct n.value ->> 'waits_for' as name from json_each(?1) n) n
cross join rowlock_completion c on c.name = n.name
cross join rowlock_waiting w on w.name = c.name
