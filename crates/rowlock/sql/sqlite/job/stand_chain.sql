-- Lists the state of every link of a job's chain, first link first, and which links compensate for another.
-- Index: rowlock_job by id, rowlock_job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock_job where id = ?1
), link as materialized (
  select j.id, j.if_retired ->> 'uid' as undo from root r cross join rowlock_job j on j.id = r.id
  union all
  select j.id, j.if_retired ->> 'uid' from root r cross join rowlock_job j on j.chain = r.id
)
select
  id, state, last_outcome, last_error, result,
  uid in (select undo from link where undo is not null) as compensates
from rowlock_jobs where id in (select id from link) order by position, id
