-- Claims jobs like claim/take.sql, for kinds that are bound to breakers.
-- Index: ready_order, one contiguous scan per range (queue, kind, priority), from a cursor; a queue's ranges in order;
-- worker_pkey; job_pkey; breaker_pkey.
-- It locks the breakers' rows in share mode, so a caller that opens a breaker waits for this claim. It claims nothing
-- that is bound to a breaker that is not closed.
-- only here: SQLite first asks which breakers are closed, under its write lock.
with me as materialized (
  select id from rowlock.worker where id = $1 and not dead for key share
), closed as materialized (
  select b.name from rowlock.breaker b where b.name = any ($13::text[]) and b.state = 'closed' order by b.name for share
), shut as materialized (
  select b.kind_no from unnest($12::bigint[], $13::text[]) as b (kind_no, name)
  where b.name not in (select c.name from closed c)
), clock as materialized (
  select coalesce($9::timestamptz, clock_timestamp()) as now
), taken as (
  delete from rowlock.ready where ctid = any (array(
    select spot.ctid
    from me
    cross join unnest($2::int[], $3::int[], $11::int[]) as q (first, places, last)
    cross join lateral (
      select due.ctid
      from unnest(
        ($4::bigint[])[q.first:q.last], ($5::bigint[])[q.first:q.last], ($6::smallint[])[q.first:q.last],
        ($7::timestamptz[])[q.first:q.last], ($8::bigint[])[q.first:q.last]
      ) as p (queue_no, kind_no, priority, from_due, from_id)
      cross join lateral (
        select r.ctid
        from rowlock.ready r
        where r.queue_no = p.queue_no and r.kind_no = p.kind_no and r.alone = $10 and r.priority = p.priority
          and p.kind_no not in (select s.kind_no from shut s)
          and (r.due_at, r.id) >= (p.from_due, p.from_id)
          and r.due_at <= (select now from clock)
        order by r.due_at, r.id
        limit q.places
        for update skip locked
      ) due
      limit q.places
    ) spot
  ))
  returning id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority, due_at
), held as (
  insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
  select t.id, t.epoch + 1, $1, t.attempt + 1, t.attempts_max, t.queue_no, t.kind_no, t.alone, t.priority, c.now
  from taken t cross join clock c
)
-- The last row says that the worker is alive, and returns the current time.
select
  t.id, t.epoch + 1 as epoch, t.attempt + 1 as attempt, t.attempts_max, t.queue_no, t.kind_no, t.priority, t.due_at,
  j.uid, j.kind, j.version, j.queue, j.payload::text as payload, j.chain, j.position, j.created_at,
  j.group_no, j.trace,
  -- 1: the job's expiry is past. 2: the job's group stops when the job is retired.
  ((coalesce(j.expires_at <= (select now from clock), false))::int + (coalesce(j.group_stops, false))::int * 2)::smallint as marks
from taken t
left join rowlock.job j on j.id = t.id
union all
select null, null, null, null, null, null, null, c.now, null, null, null, null, null, null, null, null, null, null, null
from me cross join clock c
