-- Records how attempts ended, only where the token still holds; a token that does not come back has lost its lease.
-- Index: lease_pkey, outcome_id (history of a retired job); writes ready_order, ready_id.
with input as materialized (
  select u.*, coalesce($9::timestamptz, clock_timestamp()) as now
  from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
    as u (id, epoch, worker, outcome, place, delay_us, error, result)
), gone as (
  delete from rowlock.lease l using input u
  -- By the key, row by row, whatever the statistics say: one equality more, and an index read from end to end can be a plan.
  where l.id = any (array[u.id]) and l.epoch = u.epoch and l.worker = u.worker
    and ($10::text is null or current_setting('rowlock_tx.marker', true) = $10)
  returning
    l.id, l.epoch, l.worker, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.alone, l.priority, l.claimed_at,
    u.outcome, u.place, u.delay_us, u.error, u.result, u.now
), back as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select
    queue_no, kind_no, alone and outcome = 'released', priority, now + delay_us * interval '1 microsecond', id, epoch,
    attempt - case when outcome in ('deferred', 'released') then 1 else 0 end, attempts_max
  from gone where place = 'ready'
), filed as (
  insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    g.id, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, coalesce(g.error, g.outcome), g.now,
    coalesce((
      select jsonb_agg(jsonb_build_object(
        'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
        'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
      from rowlock.outcome o where o.id = g.id
    ), '[]') || jsonb_build_object(
      'epoch', g.epoch, 'attempt', g.attempt, 'outcome', g.outcome, 'worker', g.worker,
      'started_at', g.claimed_at, 'ended_at', g.now, 'error', g.error)
  from gone g where g.place = 'case'
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  select id, epoch, worker, attempt, outcome, claimed_at, now, error, result::json from gone
)
select g.id, g.epoch, m.marked
from (select ($10::text is null or coalesce(current_setting('rowlock_tx.marker', true), '') = $10) as marked) m
left join gone g on true
