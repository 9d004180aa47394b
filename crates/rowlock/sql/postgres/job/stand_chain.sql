-- Lists the state of every link of a job's chain, first link first, and which links compensate for another.
-- Index: job_pkey, job_chain.
with root as materialized (
  select coalesce(chain, id) as id from rowlock.job where id = $1
), link as materialized (
  select j.id, j.if_retired ->> 'uid' as undo from rowlock.job j join root r on j.id = r.id
  union all
  select j.id, j.if_retired ->> 'uid' from rowlock.job j join root r on j.chain = r.id
)
select
  id, state, last_outcome, last_error, result::text as result,
  uid::text in (select undo from link where undo is not null) as compensates
from rowlock.jobs where id in (select id from link) order by position, id
