-- Lists every link of the chain that a job belongs to, first link first.
-- Index: rowlock_job by id, rowlock_job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock_job where id = ?1
), link as materialized (
  select id from root
  union
  select j.id from root r cross join rowlock_job j on j.chain = r.id
)
select
  id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result, payload, tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from rowlock_jobs where id in (select id from link) order by position, id
