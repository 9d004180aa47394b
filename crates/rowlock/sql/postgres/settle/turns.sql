-- As settle/done.sql, where jobs are in groups: passes their turns on in the same statement, and says which queues got work.
-- Index: lease_pkey; writes outcome_id. Inside rowlock.pass_turns: job_group_pkey, waiting_group; writes ready_order, ready_id.
-- no twin: sqlite settles every batch with the same statements.
with gone as (
  delete from rowlock.lease l
  using unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $6::bigint[]) as u (id, epoch, worker, result, turn)
  -- By the key, row by row, whatever the statistics say: one equality more, and an index read from end to end can be a plan.
  where l.id = any (array[u.id]) and l.epoch = u.epoch and l.worker = u.worker
  returning l.id, l.epoch, l.worker, l.attempt, l.claimed_at, u.result, u.turn
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  select id, epoch, worker, attempt, 'done', claimed_at, coalesce($5::timestamptz, clock_timestamp()), null, result::json
  from gone
), turns as materialized (
  select array_agg(turn) as groups, array_agg(id) as heads from gone where turn is not null
), passed as materialized (
  select rowlock.pass_turns(groups, heads, $5::timestamptz) as woken from turns
)
select g.id, g.epoch, p.woken from passed p left join gone g on true
