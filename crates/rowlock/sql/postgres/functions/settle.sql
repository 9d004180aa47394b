-- The end of an attempt, for every caller, and the jobs that follow it.

-- The ended attempts of a job as its case keeps them: the first and the last fifty. The first attempt after the gap
-- stores how many are left out. A history without a limit could outgrow the maximum size of one value.
create or replace function rowlock.history_of(job bigint) returns jsonb
language sql stable security invoker
as $body$
  select coalesce(jsonb_agg(
    jsonb_build_object(
      'epoch', e.epoch, 'attempt', e.attempt, 'outcome', e.outcome, 'worker', e.worker,
      'started_at', e.started_at, 'ended_at', e.ended_at, 'error', e.error
    ) || case when e.back = 50 and e.ends > 100 then jsonb_build_object('left_out', e.ends - 100) else '{}' end
    order by e.epoch), '[]')
  from (
    select o.*, row_number() over (order by o.epoch) as no, row_number() over (order by o.epoch desc) as back, count(*) over () as ends
    from rowlock.outcome o where o.id = job
  ) e
  where e.no <= 50 or e.back <= 50
$body$;

-- Ends leases, each only if its token holds. It writes the outcome, puts the job back to ready or creates a case with
-- its compensation, and passes the turn of its group on. Every end of a lease is made here.
-- It says which tokens held, by their positions in the input from one on, and which queues got work. RL002 if the
-- transaction is not the one that was marked. A null outcome means done, and a null place means finished.
-- It is a function so that its plans do not depend on the settings of the user's session: a plan made there reads a
-- small table as a whole, and with it every dead lease.
create or replace function rowlock.end_leases(
  ids bigint[], epochs bigint[], workers bigint[], results text[], turns bigint[], marker text, at timestamptz,
  outcomes text[] default null, places text[] default null, delays_us bigint[] default null, errors text[] default null,
  out held bigint[], out woken bigint[]
)
language plpgsql security invoker
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := coalesce(at, clock_timestamp());
  one rowlock.lease;
  gone rowlock.lease[];
  retired bigint[];
begin
  if coalesce(current_setting('rowlock_tx.marker', true), '') <> marker then
    raise exception 'this transaction is not the one job % was given', ids[1] using errcode = 'RL002';
  end if;
  if cardinality(ids) = 1 then
    -- Does the same as the statement below in half the time, because every handler's transaction ends with it.
    delete from rowlock.lease l where l.id = ids[1] and l.epoch = epochs[1] and l.worker = workers[1] returning l.* into one;
    if found then
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
      values (
        one.id, one.epoch, one.worker, one.attempt, coalesce(outcomes[1], 'done'), one.claimed_at, now, errors[1], results[1]::json
      );
      held := '{1}';
      gone := array[one];
    end if;
  elsif places is null then
    -- The next branch without what follows an attempt that is not done: most batches are only done.
    with gone as (
      delete from rowlock.lease l
      using unnest(ids, epochs, workers, results) with ordinality as u (id, epoch, worker, result, ord)
      where l.id = any (array[u.id]) and l.epoch = any (array[u.epoch]) and l.worker = any (array[u.worker])
      returning l.id, l.epoch, l.worker, l.attempt, l.claimed_at, u.result, u.ord
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
      select id, epoch, worker, attempt, 'done', claimed_at, now, null, result::json from gone
    )
    select array_agg(g.ord) into held from gone g;
  else
    with gone as (
      delete from rowlock.lease l
      using unnest(ids, epochs, workers, outcomes, errors, results)
        with ordinality as u (id, epoch, worker, outcome, error, result, ord)
      -- `any` makes the plan read by key, row by row, whatever the statistics say. With `=`, the planner could join
      -- whole tables.
      where l.id = any (array[u.id]) and l.epoch = any (array[u.epoch]) and l.worker = any (array[u.worker])
      returning l as lease, l.id, l.epoch, l.worker, l.attempt, l.claimed_at, u.outcome, u.error, u.result, u.ord
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
      select id, epoch, worker, attempt, coalesce(outcome, 'done'), claimed_at, now, error, result::json from gone
    )
    select array_agg(g.ord), array_agg(g.lease) into held, gone from gone g;
  end if;
  if places is not null then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select
      g.queue_no, g.kind_no, outcomes[g.ord] = 'lost' or (g.alone and outcomes[g.ord] = 'released'), g.priority,
      now + coalesce(delays_us[g.ord], 0) * interval '1 microsecond', g.id, g.epoch,
      g.attempt - case when outcomes[g.ord] in ('deferred', 'released') then 1 else 0 end, g.attempts_max
    from unnest(held, gone) as g (ord, id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
    where places[g.ord] = 'ready';
    with filed as (
      insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
      select
        g.id, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, coalesce(errors[g.ord], outcomes[g.ord]), now,
        rowlock.history_of(g.id)
      from unnest(held, gone) as g (ord, id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
      where places[g.ord] = 'case'
      returning id
    )
    select array_agg(id) into retired from filed;
    if retired is not null then
      woken := rowlock.compensate(retired, at);
    end if;
  end if;
  if turns is not null then
    woken := woken || (
      select rowlock.pass_turns(array_agg(turns[h.ord]), array_agg(ids[h.ord]), at)
      from unnest(held) as h (ord) where turns[h.ord] is not null having count(*) > 0
    );
  end if;
end
$body$;

-- Settles an attempt as done in its handler's own transaction, and enqueues the next job, if any. RL001 if the token no
-- longer holds: then nothing after the call in the same string runs, not even a commit. It says which queues got work
-- because the turn of the job's group was passed on.
create or replace function rowlock.settle_done(
  token_id bigint, token_epoch bigint, token_worker bigint, marker text, result text, turn bigint, next jsonb, at timestamptz
) returns bigint[]
language plpgsql security invoker
as $body$
declare
  ended record;
  queue bigint;
begin
  ended := rowlock.end_leases(
    array[token_id], array[token_epoch], array[token_worker], array[result], case when turn is not null then array[turn] end,
    marker, at);
  if ended.held is null then
    raise exception 'the lease of job % is lost', token_id using errcode = 'RL001';
  end if;
  if next is not null and not (token_epoch > 1 and rowlock.has_next(token_id)) then
    queue := rowlock.put_job(next, at);
  end if;
  return ended.woken;
end
$body$;

-- Says whether a job was done before it was re-run and has next jobs since then. The next jobs are not made again.
create or replace function rowlock.has_next(job bigint) returns boolean
language plpgsql stable security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
begin
  return exists (
    select from rowlock.job j
    join rowlock.job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
    where j.id = job and j.was_done and x.uid is distinct from (j.if_retired ->> 'uid')::uuid
  );
end
$body$;

-- Enqueues the compensations of jobs that were just retired, in the same commit, as the next link of their chain. Each
-- job gets one compensation, and none while a parked effect of the job is in doubt. It says which queues got them.
create or replace function rowlock.compensate(retired bigint[], at timestamptz) returns bigint[]
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
begin
  return array(
    select rowlock.put_job(c.if_retired::jsonb, compensate.at, null, false, c.chain, c.position, c.trace)
    from (
      select j.if_retired, coalesce(j.chain, j.id) as chain, j.position + 1 as position, j.trace
      from rowlock.job j
      join rowlock.case_file f on f.id = j.id
      where j.id = any (retired) and j.if_retired is not null
        -- What the job did when it was done is still valid.
        and j.was_done is not true
        -- An operator must still resolve the effect, or resolved it while the attempt ran. The attempt may not have
        -- seen that, and the job may go on.
        and not exists (
          select from rowlock.effect e
          where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
            e.resolved_by is not null
            and e.ended_at >= (select o.started_at from rowlock.outcome o where o.id = f.id and o.epoch = f.epoch)
          ))
        )
        -- The job was retired before and reopened.
        and not exists (
          select from rowlock.job x
          where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = (j.if_retired ->> 'uid')::uuid
        )
      offset 0
    ) c
  );
end
$body$;

revoke all on function rowlock.history_of, rowlock.end_leases, rowlock.settle_done, rowlock.has_next,
  rowlock.compensate from public;
