-- Lists jobs of one state, newest first, narrowed by whatever is given: from the place they stand in, however many are finished.
-- Index: ready_id, waiting_pkey, lease_pkey or case_file_pkey, backwards; for finished ones outcome_id, backwards; job_pkey.
with walk as materialized (
  (
    select s.id from rowlock.ready s join rowlock.job j on j.id = s.id
    where $3::text = 'ready' and ($5::bigint is null or s.id < $5)
      and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
      and ($4::text is null or j.tags @> jsonb_build_array($4))
    order by s.id desc limit $6
  )
  union all
  (
    select s.id from rowlock.waiting s join rowlock.job j on j.id = s.id
    where $3::text = 'waiting' and ($5::bigint is null or s.id < $5)
      and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
      and ($4::text is null or j.tags @> jsonb_build_array($4))
    order by s.id desc limit $6
  )
  union all
  (
    select s.id from rowlock.lease s join rowlock.job j on j.id = s.id
    where $3::text = 'leased' and ($5::bigint is null or s.id < $5)
      and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
      and ($4::text is null or j.tags @> jsonb_build_array($4))
    order by s.id desc limit $6
  )
  union all
  (
    select s.id from rowlock.case_file s join rowlock.job j on j.id = s.id
    where $3::text = 'case' and ($5::bigint is null or s.id < $5)
      and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
      and ($4::text is null or j.tags @> jsonb_build_array($4))
    order by s.id desc limit $6
  )
  union all
  (
    select o.id from rowlock.outcome o join rowlock.job j on j.id = o.id
    where $3::text = 'finished' and o.outcome in ('done', 'cancelled') and ($5::bigint is null or o.id < $5)
      and ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
      and ($4::text is null or j.tags @> jsonb_build_array($4))
      -- One that was re-run has gone on.
      and not exists (select from rowlock.outcome x where x.id = o.id and x.epoch > o.epoch)
      and not exists (select from rowlock.ready r where r.id = o.id)
      and not exists (select from rowlock.lease l where l.id = o.id)
      and not exists (select from rowlock.waiting w where w.id = o.id)
    order by o.id desc limit $6
  )
)
select
  v.id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result::text as result, payload::text as payload, tags::text as tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from walk cross join lateral (select * from rowlock.jobs b where b.id = walk.id) v
order by v.id desc limit $6
