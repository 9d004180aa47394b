-- Lists jobs of one state, newest first, filtered by the given values.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease or rowlock_case_file by id, backwards from where the last page
-- ended; rowlock_outcome_id for finished jobs; rowlock_job by id.
-- It reads the place that the jobs are in, so the number of finished jobs does not matter.
with walk as materialized (
  select * from (
    select s.id from rowlock_ready s cross join rowlock_job j on j.id = s.id
    where ?3 = 'ready' and s.id < coalesce(?5, 9223372036854775807)
      and (?1 is null or j.queue = ?1) and (?2 is null or j.kind = ?2)
      and (?4 is null or exists (select 1 from json_each(j.tags) t where t.value = ?4))
    order by s.id desc limit +?6
  )
  union all
  select * from (
    select s.id from rowlock_waiting s cross join rowlock_job j on j.id = s.id
    where ?3 = 'waiting' and s.id < coalesce(?5, 9223372036854775807)
      and (?1 is null or j.queue = ?1) and (?2 is null or j.kind = ?2)
      and (?4 is null or exists (select 1 from json_each(j.tags) t where t.value = ?4))
    order by s.id desc limit +?6
  )
  union all
  select * from (
    select s.id from rowlock_lease s cross join rowlock_job j on j.id = s.id
    where ?3 = 'leased' and s.id < coalesce(?5, 9223372036854775807)
      and (?1 is null or j.queue = ?1) and (?2 is null or j.kind = ?2)
      and (?4 is null or exists (select 1 from json_each(j.tags) t where t.value = ?4))
    order by s.id desc limit +?6
  )
  union all
  select * from (
    select s.id from rowlock_case_file s cross join rowlock_job j on j.id = s.id
    where ?3 = 'case' and s.id < coalesce(?5, 9223372036854775807)
      and (?1 is null or j.queue = ?1) and (?2 is null or j.kind = ?2)
      and (?4 is null or exists (select 1 from json_each(j.tags) t where t.value = ?4))
    order by s.id desc limit +?6
  )
  union all
  select * from (
    select o.id from rowlock_outcome o cross join rowlock_job j on j.id = o.id
    where ?3 = 'finished' and o.outcome in ('done', 'cancelled') and o.id < coalesce(?5, 9223372036854775807)
      and (?1 is null or j.queue = ?1) and (?2 is null or j.kind = ?2)
      and (?4 is null or exists (select 1 from json_each(j.tags) t where t.value = ?4))
      -- A job that was re-run is not finished.
      and not exists (select 1 from rowlock_outcome x where x.id = o.id and x.epoch > o.epoch)
      and not exists (select 1 from rowlock_ready r where r.id = o.id)
      and not exists (select 1 from rowlock_lease l where l.id = o.id)
      and not exists (select 1 from rowlock_waiting w where w.id = o.id)
    order by o.id desc limit +?6
  )
)
select
  v.id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result, payload, tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from walk cross join rowlock_jobs v on v.id = walk.id
order by v.id desc limit +?6
