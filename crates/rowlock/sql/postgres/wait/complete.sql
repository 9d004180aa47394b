-- Completes a name once and moves the jobs that wait for it to ready, in the caller's transaction; no row comes back when it was completed before.
-- Index: completion_pkey, waiting_name; writes ready_order, ready_id. Jobs that commit meanwhile are left to wait/completed.sql.
with new as (
  insert into rowlock.completion (name, answer, completed_at)
  values ($1, $2::text::json, coalesce($3::timestamptz, clock_timestamp()))
  on conflict (name) do nothing
  returning name, completed_at as now
), moved as (
  delete from rowlock.waiting w using new n where w.name = n.name
  returning w.id, w.queue_no, w.kind_no, w.priority, greatest(w.due_at, n.now) as due_at, w.epoch, w.attempt, w.attempts_max
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, epoch, attempt, attempts_max from moved
)
select
  (select count(*) from moved) as jobs,
  (
    select count(pg_notify($4, d.queue_no::text))
    from (select distinct queue_no from moved) d
    where $4::text is not null
  ) as hints
from new
