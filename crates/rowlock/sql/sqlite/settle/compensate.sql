-- Returns the compensations of jobs just retired, as the next link of their chain, for enqueue/jobs.sql.
-- Index: rowlock_job by id, rowlock_case_file by id, rowlock_effect by id and name, rowlock_outcome_id,
-- rowlock_job_chain.
-- Each job gets one compensation, and none while a parked effect of the job is in doubt.
-- only here: PostgreSQL enqueues them inside rowlock.compensate.
select j.id, j.if_retired, coalesce(j.chain, j.id) as chain, j.position + 1 as position, j.trace
from json_each(?1) r
cross join rowlock_job j on j.id = r.value
join rowlock_case_file c on c.id = j.id
where j.if_retired is not null
  -- What the job did when it was done is still valid.
  and j.was_done is not 1
  -- An operator must still resolve the effect, or resolved it while the attempt ran. The attempt may not have seen
  -- that, and the job may go on.
  and not exists (
    select 1 from rowlock_effect e
    where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
      e.resolved_by is not null
      and e.ended_at >= (select o.started_at from rowlock_outcome o where o.id = c.id and o.epoch = c.epoch)
    ))
  )
  -- The job was retired before and reopened. A compensation that cannot be read was never enqueued.
  and not exists (
    select 1 from rowlock_job x
    where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
      and x.uid = case when json_valid(j.if_retired) then json_extract(j.if_retired, '$.uid') end
  )
order by r.key
