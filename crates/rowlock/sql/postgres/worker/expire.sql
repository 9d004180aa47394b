-- Ends the leases of dead workers: the attempt stays counted, the job goes back to ready, to be claimed alone, or to a case when exhausted.
-- Index: none on lease by worker (the table is small); rows a settle or claim holds are skipped and fall to the next round.
with taken as materialized (
  select l.id, w.beat
  from rowlock.lease l join rowlock.worker w on w.id = l.worker
  where w.dead
  limit $1
  for update of l skip locked
), gone as (
  delete from rowlock.lease l using taken t where l.id = any (array[t.id])
  returning
    l.id, l.epoch, l.worker, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, l.claimed_at,
    t.beat, coalesce($2::timestamptz, clock_timestamp()) as now
), back as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, true, priority, now, id, epoch, attempt, attempts_max
  from gone where attempt < attempts_max
), filed as (
  insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    g.id, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, $3::text, g.now,
    coalesce((
      select jsonb_agg(jsonb_build_object(
        'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
        'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
      from rowlock.outcome o where o.id = g.id
    ), '[]') || jsonb_build_object(
      'epoch', g.epoch, 'attempt', g.attempt, 'outcome', 'lost', 'worker', g.worker,
      'started_at', g.claimed_at, 'ended_at', g.now, 'error', $3::text)
  from gone g where g.attempt >= g.attempts_max
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select id, epoch, worker, attempt, 'lost', claimed_at, now, $3::text from gone
)
select g.id, g.epoch, g.worker, g.attempt, g.attempt >= g.attempts_max as retired, j.kind, j.queue, extract(epoch from g.now - g.beat)::float8 as silent_s,
  case when not j.group_stops then j.group_no end as group_no
from gone g left join rowlock.job j on j.id = g.id
