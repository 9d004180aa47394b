-- Inserts any number of jobs, body and place, in the caller's transaction; ids come back in input order, those reserved for keys as given.
-- Index: none read; writes job_pkey, ready_order, ready_id.
with input as materialized (
  select
    coalesce(u.id, nextval('rowlock.job_id')) as id,
    u.ord,
    u.uid,
    u.kind,
    u.kind_no,
    u.version,
    u.queue,
    u.queue_no,
    u.priority,
    u.attempts_max,
    u.payload,
    u.tags,
    u.chain,
    u.position,
    greatest(coalesce(u.due_at, t.now + u.delay_us * interval '1 microsecond'), t.now) as due_at,
    u.expires_at,
    u.if_retired,
    u.trace,
    t.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) t
  cross join unnest(
    $4::uuid[], $5::text[], $6::bigint[], $7::int[], $8::text[], $9::bigint[], $10::smallint[], $11::int[],
    $12::text[], $13::text[], $14::bigint[], $15::int[], $16::timestamptz[], $17::bigint[], $18::timestamptz[], $19::text[], $20::text[],
    $3::bigint[]
  ) with ordinality as u (
    uid, kind, kind_no, version, queue, queue_no, priority, attempts_max,
    payload, tags, chain, position, due_at, delay_us, expires_at, if_retired, trace, id, ord
  )
), body as (
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, trace,
    created_at
  )
  select
    id, uid, kind, version, queue, priority, attempts_max, payload::json, tags::jsonb, chain, position, expires_at,
    if_retired::json, trace, now
  from input
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, 0, 0, attempts_max
  from input
)
select
  i.id,
  (
    select count(pg_notify($2, d.queue_no::text))
    from (select distinct queue_no from input where due_at <= now) d
    where $2::text is not null
  ) as hints
from input i order by i.ord
