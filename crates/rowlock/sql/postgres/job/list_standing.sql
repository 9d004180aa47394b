-- Lists jobs of one state, newest first, filtered by the given values.
-- Index: ready_id, waiting_pkey, lease_pkey or case_file_pkey, backwards from where the last page ended; outcome_id for
-- finished jobs; job_pkey. The joins are written so that no plan can reverse them.
-- It reads the place that the jobs are in, so the number of finished jobs does not matter.
with walk as materialized (
  (
    select x.id from rowlock.ready x
    where $3::text = 'ready' and x.id < coalesce($5::bigint, 9223372036854775807)
      and exists (
        select from rowlock.job j
        where j.id = x.id and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
          and ($4::text is null or j.tags @> jsonb_build_array($4))
        offset 0
      )
    order by x.id desc limit $6
  )
  union all
  (
    select x.id from rowlock.waiting x
    where $3::text = 'waiting' and x.id < coalesce($5::bigint, 9223372036854775807)
      and exists (
        select from rowlock.job j
        where j.id = x.id and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
          and ($4::text is null or j.tags @> jsonb_build_array($4))
        offset 0
      )
    order by x.id desc limit $6
  )
  union all
  (
    select x.id from rowlock.lease x
    where $3::text = 'leased' and x.id < coalesce($5::bigint, 9223372036854775807)
      and exists (
        select from rowlock.job j
        where j.id = x.id and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
          and ($4::text is null or j.tags @> jsonb_build_array($4))
        offset 0
      )
    order by x.id desc limit $6
  )
  union all
  (
    select x.id from rowlock.case_file x
    where $3::text = 'case' and x.id < coalesce($5::bigint, 9223372036854775807)
      and exists (
        select from rowlock.job j
        where j.id = x.id and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
          and ($4::text is null or j.tags @> jsonb_build_array($4))
        offset 0
      )
    order by x.id desc limit $6
  )
  union all
  (
    select x.id from rowlock.outcome x
    where $3::text = 'finished' and x.outcome in ('done', 'cancelled') and x.id < coalesce($5::bigint, 9223372036854775807)
      and exists (
        select from rowlock.job j
        where j.id = x.id and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
          and ($4::text is null or j.tags @> jsonb_build_array($4))
        offset 0
      )
      -- A job that was re-run is not finished.
      and not exists (select from rowlock.outcome o where o.id = x.id and o.epoch > x.epoch offset 0)
      and not exists (select from rowlock.ready r where r.id = x.id offset 0)
      and not exists (select from rowlock.lease l where l.id = x.id offset 0)
      and not exists (select from rowlock.waiting w where w.id = x.id offset 0)
    order by x.id desc limit $6
  )
)
select
  v.id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result::text as result, payload::text as payload, tags::text as tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from walk cross join lateral (select * from rowlock.jobs b where b.id = walk.id limit 1) v
order by walk.id desc
