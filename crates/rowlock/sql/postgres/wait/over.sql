-- Ends waiting jobs whose limit has passed: retires them, or cancels them by their expiry, as set at enqueue.
-- Index: waiting_limit, completion_pkey. Locked rows, such as those of an open completion, are left to the next round.
-- The rest is inside rowlock.end_leases, under leases of worker 0.
-- No attempt was made, so the row in the outcome log names no worker.
with clock as materialized (
  select coalesce($2::timestamptz, clock_timestamp()) as now
), taken as materialized (
  select w.id
  from rowlock.waiting w
  where w.limit_at <= (select now from clock)
    and not exists (select from rowlock.completion c where c.name = w.name)
  order by w.limit_at
  limit $1
  for update of w skip locked
), gone as (
  delete from rowlock.waiting w using taken t where w.id = t.id
  returning w.*, case w.limit_ends when 'retired' then $3::text else $4::text end || w.name as reason
), held as (
  insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
  select id, epoch + 1, 0, attempt, attempts_max, queue_no, kind_no, false, priority, since from gone
  returning id, epoch
), ended as materialized (
  select e.woken
  from (
    select
      array_agg(h.id) as ids, array_agg(h.epoch) as epochs, array_agg(0::bigint) as workers, array_agg(g.limit_ends) as outcomes,
      array_agg(case g.limit_ends when 'retired' then 'case' else 'finished' end) as places, array_agg(g.reason) as errors
    from held h join gone g on g.id = h.id having count(*) > 0
  ) l
  cross join lateral rowlock.end_leases(
    l.ids, l.epochs, l.workers, null, null, null, (select now from clock), l.outcomes, l.places, null, l.errors) e
)
select g.id, g.limit_ends as outcome, g.reason, coalesce(j.queue, '') as queue, coalesce(j.kind, '') as kind, e.woken
from gone g cross join ended e left join rowlock.job j on j.id = g.id
