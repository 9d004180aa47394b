-- Where every link of a job's chain stands, first link first.
-- Index: rowlock_job by id, rowlock_job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock_job where id = ?1
), link as materialized (
  select id from root
  union
  select j.id from root r cross join rowlock_job j on j.chain = r.id
)
select id, state, last_outcome, last_error, result
from rowlock_jobs where id in (select id from link) order by position, id
