-- Enqueues the compensations of jobs that were just retired, in the commit that retired them, as the next link of their chain; once per job, and not while a parked effect of it is in doubt.
-- Index: job_pkey, case_file_pkey, effect_id_name_key, outcome_id, job_chain; writes ready_order, ready_id.
with input as materialized (
  select
    nextval('rowlock.job_id') as id, j.if_retired as c, coalesce(j.chain, j.id) as chain, j.position + 1 as position, j.trace,
    coalesce($2::timestamptz, clock_timestamp()) as now
  from rowlock.job j
  join rowlock.case_file f on f.id = j.id
  where j.id = any ($1::bigint[]) and j.if_retired is not null
    -- A person is still to say what happened, or has said it while the attempt ran, which may not have heard of it: the
    -- job may go on.
    and not exists (
      select from rowlock.effect e
      where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
        e.resolved_by is not null
        and e.ended_at >= (select o.started_at from rowlock.outcome o where o.id = f.id and o.epoch = f.epoch)
      ))
    )
    -- Retired before, and reopened.
    and not exists (
      select from rowlock.job x
      where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = (j.if_retired ->> 'uid')::uuid
    )
), body as (
  insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, trace, created_at)
  select
    id, (c ->> 'uid')::uuid, c ->> 'kind', (c ->> 'version')::int, c ->> 'queue', (c ->> 'priority')::smallint,
    (c ->> 'attempts_max')::int, c -> 'payload', (c -> 'tags')::jsonb, chain, position, trace, now
  from input
), place as (
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select
    (c ->> 'queue_no')::bigint, (c ->> 'kind_no')::bigint, false, (c ->> 'priority')::smallint, now, id, 0, 0,
    (c ->> 'attempts_max')::int
  from input
)
select id, c ->> 'queue' as queue from input
