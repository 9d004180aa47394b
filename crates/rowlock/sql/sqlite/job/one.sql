-- Returns one job by its id.
-- Index: rowlock_job by id.
select
  id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result, payload, tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from rowlock_jobs where id = ?1
