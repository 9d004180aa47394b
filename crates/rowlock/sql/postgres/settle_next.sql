-- The same as settle_one, and enqueues the next links of the chain in the same statement.
-- Index: lease_pkey; writes outcome_id, job_pkey, ready_order, ready_id.
-- no twin: sqlite settles every batch with the same statements.
with clock as materialized (
  select coalesce($6::timestamptz, clock_timestamp()) as now
), gone as (
  delete from rowlock.lease
  where id = $1 and epoch = $2 and worker = $3 and current_setting('rowlock_tx.marker', true) = $4
  returning id, epoch, worker, attempt, claimed_at
), logged as (
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  select g.id, g.epoch, g.worker, g.attempt, 'done', g.claimed_at, c.now, null, $5::json
  from gone g cross join clock c
), input as materialized (
  select
    nextval('rowlock.job_id') as id, u.*,
    greatest(coalesce(u.due, c.now + u.delay_us * interval '1 microsecond'), c.now) as due_at,
    c.now
  from gone
  cross join clock c
  cross join unnest(
    $7::uuid[], $8::text[], $9::bigint[], $10::int[], $11::text[], $12::bigint[], $13::smallint[], $14::int[],
    $15::text[], $16::text[], $17::bigint[], $18::int[], $19::timestamptz[], $20::bigint[], $21::timestamptz[], $22::text[]
  ) as u (
    uid, kind, kind_no, version, queue, queue_no, priority, attempts_max,
    payload, tags, chain, position, due, delay_us, expires_at, if_retired
  )
), body as (
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, created_at
  )
  select
    id, uid, kind, version, queue, priority, attempts_max, payload::json, tags::jsonb, chain, position, expires_at,
    if_retired::json, now
  from input
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select queue_no, kind_no, false, priority, due_at, id, 0, 0, attempts_max
  from input
)
select exists (select from gone) as applied, coalesce(current_setting('rowlock_tx.marker', true), '') = $4 as marked
