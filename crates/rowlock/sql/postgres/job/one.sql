-- Returns one job by its id.
-- Index: job_pkey.
select
  id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result::text as result, payload::text as payload, tags::text as tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from rowlock.jobs where id = $1
