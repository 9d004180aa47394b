-- Lists jobs, newest first, filtered by the given values.
-- Index: job_pkey, backwards from where the last page ended; job_key_pkey, which narrows the scan to one job. The joins
-- are written so that no plan can reverse them.
select
  v.id, uid, kind, version, queue, priority, state, attempt, attempts_max, epoch, due_at, worker, claimed_at, last_outcome,
  last_ended_at, last_error, result::text as result, payload::text as payload, tags::text as tags, chain, position, expires_at, created_at,
  waits_for, key, in_group
from (
  select j.id from rowlock.job j
  where ($1::text is null or j.queue = $1)
    and ($2::text is null or j.kind = $2)
    and ($4::text is null or j.tags @> jsonb_build_array($4))
    and j.id < coalesce($5::bigint, 9223372036854775807)
    and j.id >= (select case when $7::text is null then 0 else coalesce(max(k.id), 0) end from rowlock.job_key k where k.key = $7)
    and j.id <= (
      select case when $7::text is null then 9223372036854775807 else coalesce(max(k.id), 0) end
      from rowlock.job_key k where k.key = $7
    )
  order by j.id desc
) walk
cross join lateral (select * from rowlock.jobs b where b.id = walk.id limit 1) v
where $3::text is null or v.state = $3
order by walk.id desc limit $6
