-- Ends the leases of dead workers; each attempt stays counted.
-- Index: none on lease by worker (the table is small). Rows that a settle or claim has locked are left to the next
-- round. The rest is inside rowlock.end_leases.
-- The job goes back to ready, to be claimed alone, or becomes a case if its attempts are used up.
with taken as materialized (
  select l.id, l.epoch, l.worker, l.attempt, l.attempt >= l.attempts_max as retired, w.beat
  from rowlock.lease l join rowlock.worker w on w.id = l.worker
  where w.dead
  limit $1
  for update of l skip locked
), lost as materialized (
  select
    t.*, j.kind, j.queue, case when t.retired and not coalesce(j.group_stops, false) then j.group_no end as turn
  from taken t left join rowlock.job j on j.id = t.id
), ended as materialized (
  select e.woken
  from (
    select
      array_agg(id) as ids, array_agg(epoch) as epochs, array_agg(worker) as workers, array_agg(turn) as turns,
      array_agg('lost'::text) as outcomes, array_agg(case when retired then 'case' else 'ready' end) as places, array_agg($3::text) as errors
    from lost having count(*) > 0
  ) l
  cross join lateral rowlock.end_leases(
    l.ids, l.epochs, l.workers, null, l.turns, null, $2::timestamptz, l.outcomes, l.places, null, l.errors) e
)
select
  l.id, l.epoch, l.worker, l.attempt, l.retired, l.kind, l.queue, l.turn as group_no, e.woken,
  extract(epoch from coalesce($2::timestamptz, clock_timestamp()) - l.beat)::float8 as silent_s
from lost l cross join ended e
