-- Moves the heads of paused groups from ready back to waiting; a head that is leased goes on.
-- Index: rowlock_job_group_paused, rowlock_ready by id; writes rowlock_waiting_group.
-- Runs before group/withdraw_head.sql and group/withdraw_ready.sql.
insert into rowlock_waiting (
  id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
)
select
  r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max, 'cancelled', ?1, g.no
from rowlock_job_group g indexed by rowlock_job_group_paused
cross join rowlock_ready r on r.id = g.head
where g.paused = 1
