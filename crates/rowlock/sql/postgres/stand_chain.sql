-- Where every link of a job's chain stands, first link first.
-- Index: job_pkey, job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock.job where id = $1
), link as materialized (
  select id from root
  union
  select j.id from rowlock.job j join root r on j.chain = r.id
)
select id, state, last_outcome, last_error, result::text as result
from rowlock.jobs where id in (select id from link) order by position, id
