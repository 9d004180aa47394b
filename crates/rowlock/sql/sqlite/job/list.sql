-- Lists jobs, newest first, filtered by the given values.
-- Index: rowlock_job by id, backwards; the primary key of rowlock_job_key, which narrows the scan to one job.
select
  id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result, payload, tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from rowlock_jobs
where (?1 is null or queue = ?1)
  and (?2 is null or kind = ?2)
  and (?3 is null or state = ?3)
  and (?4 is null or exists (select 1 from json_each(tags) t where t.value = ?4))
  and id < coalesce(?5, 9223372036854775807)
  and id >= (select case when ?7 is null then 0 else coalesce(max(k.id), 0) end from rowlock_job_key k where k.key = ?7)
  and id <= (
    select case when ?7 is null then 9223372036854775807 else coalesce(max(k.id), 0) end
    from rowlock_job_key k where k.key = ?7
  )
order by id desc limit +?6
