-- Inserts jobs, each with its body and its place, in the caller's transaction.
-- Index: completion_pkey; writes job_pkey, job_in_group, ready_order, ready_id, waiting_pkey, waiting_name,
-- waiting_limit, waiting_group.
-- A job goes to waiting if the name it waits for is not completed, or if it is not the head of its group. Otherwise it
-- goes to ready. Ids come back in input order; reserved ids come back as given.
with input as materialized (
  select
    coalesce(u.reserved, nextval('rowlock.job_id')) as id,
    u.*,
    greatest(coalesce(u.due, t.now + u.delay_us * interval '1 microsecond'), t.now) as due_at,
    t.now + u.limit_us * interval '1 microsecond' as limit_at,
    u.waits_for is not null and not exists (select from rowlock.completion c where c.name = u.waits_for)
    or not coalesce(u.head, true) as waits,
    t.now
  from (select coalesce($1::timestamptz, clock_timestamp()) as now) t
  cross join unnest(
    $4::uuid[], $5::text[], $6::bigint[], $7::int[], $8::text[], $9::bigint[], $10::smallint[], $11::int[], $12::text[], $13::text[],
    $14::bigint[], $15::int[], $16::timestamptz[], $17::bigint[], $18::timestamptz[], $19::text[], $20::text[], $3::bigint[],
    $21::text[], $22::bigint[], $23::text[], $24::boolean[], $25::bigint[], $26::boolean[]
  ) with ordinality as u (
    uid, kind, kind_no, version, queue, queue_no, priority, attempts_max, payload, tags, chain, position, due, delay_us, expires_at,
    if_retired, trace, reserved, waits_for, limit_us, in_group, group_stops, group_no, head, ord
  )
), body as (
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, trace,
    created_at, waits_for, in_group, group_no, group_stops
  )
  select
    id, uid, kind, version, queue, priority, attempts_max, payload::json, tags::jsonb, chain, position, expires_at,
    if_retired::json, trace, now, waits_for, in_group, group_no, group_stops
  from input
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, 0, 0, attempts_max from input where not waits
), wait as (
  insert into rowlock.waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
  )
  select
    id, waits_for, queue_no, kind_no, priority, due_at, 0, 0, attempts_max,
    case when group_no is null then least(limit_at, expires_at) end,
    case when group_no is not null or expires_at <= coalesce(limit_at, 'infinity') then 'cancelled' else 'retired' end, now, group_no
  from input where waits
)
select
  i.id,
  (
    select count(pg_notify($2, d.queue_no::text))
    from (select distinct queue_no from input where not waits and due_at <= now) d
    where $2::text is not null
  ) as hints
from input i order by i.ord
