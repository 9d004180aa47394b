-- Lists every link of the chain that a job belongs to, first link first.
-- Index: job_pkey, job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock.job where id = $1
), link as materialized (
  select id from root
  union
  select j.id from rowlock.job j join root r on j.chain = r.id
)
select
  id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result::text as result, payload::text as payload, tags::text as tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from rowlock.jobs where id in (select id from link) order by position, id
