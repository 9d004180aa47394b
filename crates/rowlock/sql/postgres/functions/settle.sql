-- The end of an attempt for the library: done, with the next link; retired, with the compensation.

-- Settles an attempt that is done in its handler's own transaction, and enqueues the link that follows, if any. It raises
-- RL001 where the token no longer holds, and RL002 where the transaction is not the one that was marked: whatever stands
-- behind the call in the same string, a commit too, is then not run. A function, so that its plans are made apart from the
-- settings of the user's session: there a small table is read whole, and with it every dead lease.
create or replace function rowlock.settle_done(
  token_id bigint, token_epoch bigint, token_worker bigint, marker text, answer text, at timestamptz,
  next_uid uuid, next_kind text, next_kind_no bigint, next_version int, next_queue text, next_queue_no bigint,
  next_priority smallint, next_attempts int, next_payload text, next_tags text, next_chain bigint, next_position int,
  next_due timestamptz, next_delay bigint, next_expires timestamptz, next_compensation text, next_trace text
) returns void
language plpgsql security invoker
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  ended timestamptz := coalesce(at, clock_timestamp());
  tried int;
  began timestamptz;
  next_id bigint;
begin
  if coalesce(current_setting('rowlock_tx.marker', true), '') <> marker then
    raise exception 'this transaction is not the one job % was given', token_id using errcode = 'RL002';
  end if;
  delete from rowlock.lease l
  where l.id = token_id and l.epoch = token_epoch and l.worker = token_worker
  returning l.attempt, l.claimed_at into tried, began;
  if not found then
    raise exception 'the lease of job % is lost', token_id using errcode = 'RL001';
  end if;
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  values (token_id, token_epoch, token_worker, tried, 'done', began, ended, null, answer::json);
  -- One that was done before and was re-run may have its links.
  if next_uid is not null
    and not (token_epoch > 1 and exists (
      select from rowlock.job j
      join rowlock.job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
      where j.id = token_id and j.was_done and x.uid is distinct from (j.if_retired ->> 'uid')::uuid
    ))
  then
    next_id := nextval('rowlock.job_id');
    insert into rowlock.job (
      id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired,
      trace, created_at
    ) values (
      next_id, next_uid, next_kind, next_version, next_queue, next_priority, next_attempts, next_payload::json,
      next_tags::jsonb, next_chain, next_position, next_expires, next_compensation::json, next_trace, ended
    );
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      next_queue_no, next_kind_no, false, next_priority,
      greatest(coalesce(next_due, ended + next_delay * interval '1 microsecond'), ended), next_id, 0, 0, next_attempts
    );
  end if;
end
$body$;

-- Enqueues the compensations of jobs that were just retired, in the commit that retired them, as the next link of their chain;
-- once per job, and not while a parked effect of it is in doubt.
create or replace function rowlock.compensate(retired bigint[], at timestamptz) returns table (id bigint, queue text)
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
#variable_conflict use_column
begin
  return query
  with input as materialized (
    select
      nextval('rowlock.job_id') as id, j.if_retired as c, coalesce(j.chain, j.id) as chain, j.position + 1 as position, j.trace,
      coalesce(compensate.at, clock_timestamp()) as now
    from rowlock.job j
    join rowlock.case_file f on f.id = j.id
    where j.id = any (retired) and j.if_retired is not null
      -- What it did when it was done still stands.
      and j.was_done is not true
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
  select id, c ->> 'queue' from input;
end
$body$;

revoke all on function rowlock.settle_done from public;
revoke all on function rowlock.compensate from public;
