-- Ends waiting jobs whose limit has passed, as it was said at enqueue: retired to a case, or cancelled by their expiry. No attempt was made; the row in the log names no worker.
-- Index: waiting_limit, completion_pkey, outcome_id. Rows that somebody holds, a completion in flight for one, fall to the next round.
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
  delete from rowlock.waiting w using taken t, clock c where w.id = t.id
  returning
    w.id, w.epoch + 1 as epoch, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority, w.since, c.now,
    w.limit_ends as outcome, case w.limit_ends when 'retired' then $3::text else $4::text end || w.name as reason
), filed as (
  insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    g.id, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, g.reason, g.now,
    coalesce((
      select jsonb_agg(jsonb_build_object(
        'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
        'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
      from rowlock.outcome o where o.id = g.id
    ), '[]') || jsonb_build_object(
      'epoch', g.epoch, 'attempt', g.attempt, 'outcome', g.outcome, 'worker', 0,
      'started_at', g.since, 'ended_at', g.now, 'error', g.reason)
  from gone g where g.outcome = 'retired'
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select id, epoch, 0, attempt, outcome, since, now, reason from gone
)
select g.id, g.outcome, g.reason, coalesce(j.queue, '') as queue, coalesce(j.kind, '') as kind
from gone g left join rowlock.job j on j.id = g.id
