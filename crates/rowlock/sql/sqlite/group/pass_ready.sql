-- Moves the jobs that just became heads to ready.
-- Index: rowlock_job_group by no, rowlock_waiting by id; writes rowlock_ready_order. Runs before group/pass_gone.sql,
-- which ends their wait.
-- only here: PostgreSQL moves them inside rowlock.pass_turns.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, ?2), w.epoch, w.attempt, w.attempts_max
from json_each(?1) u
cross join rowlock_job_group g on g.no = u.value ->> 'no'
cross join rowlock_waiting w on w.id = g.head
