-- Inserts jobs of groups, in the caller's transaction: to ready where it is their turn, else to waiting behind their group's head; ids come back in input order, as given.
-- Index: none read; writes job_pkey, job_in_group, ready_order, ready_id, waiting_pkey, waiting_group.
with input as materialized (
  select
    u.id,
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
    u.in_group,
    u.group_stops,
    u.group_no,
    u.head,
    t.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) t
  cross join unnest(
    $4::uuid[], $5::text[], $6::bigint[], $7::int[], $8::text[], $9::bigint[], $10::smallint[], $11::int[],
    $12::text[], $13::text[], $14::bigint[], $15::int[], $16::timestamptz[], $17::bigint[], $18::timestamptz[], $19::text[], $20::text[],
    $3::bigint[], $21::text[], $22::boolean[], $23::bigint[], $24::boolean[]
  ) with ordinality as u (
    uid, kind, kind_no, version, queue, queue_no, priority, attempts_max,
    payload, tags, chain, position, due_at, delay_us, expires_at, if_retired, trace, id, in_group, group_stops,
    group_no, head, ord
  )
), body as (
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, trace,
    created_at, in_group, group_no, group_stops
  )
  select
    id, uid, kind, version, queue, priority, attempts_max, payload::json, tags::jsonb, chain, position, expires_at,
    if_retired::json, trace, now, in_group, group_no, group_stops
  from input
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, 0, 0, attempts_max
  from input where head
), behind as (
  insert into rowlock.waiting (
    id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
  )
  select id, queue_no, kind_no, priority, due_at, 0, 0, attempts_max, 'cancelled', now, group_no
  from input where not head
)
select
  i.id,
  (
    select count(pg_notify($2, d.queue_no::text))
    from (select distinct queue_no from input where head and due_at <= now) d
    where $2::text is not null
  ) as hints
from input i order by i.ord
