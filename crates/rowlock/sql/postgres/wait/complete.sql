-- Completes a name once, in the caller's transaction, and moves the jobs that wait for it to ready.
-- Index: completion_pkey, waiting_name; writes ready_order, ready_id, inside rowlock.end_waits. Jobs that commit
-- meanwhile are left to wait/completed.sql.
-- It returns no row if the name was completed before.
with new as (
  insert into rowlock.completion (name, answer, completed_at)
  values ($1, $2::text::json, coalesce($3::timestamptz, clock_timestamp()))
  on conflict (name) do nothing
  returning name, completed_at
), moved as materialized (
  select rowlock.end_waits(array(select w.id from rowlock.waiting w where w.name = n.name), n.completed_at) as queues from new n
)
select
  coalesce(cardinality(m.queues), 0)::bigint as jobs,
  (
    select count(pg_notify($4, d.queue_no::text))
    from (select distinct q.queue_no from unnest(m.queues) as q (queue_no)) d
    where $4::text is not null
  ) as hints
from moved m
