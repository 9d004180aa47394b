-- What people do to a job, each with its note in the audit.

-- Why a verb cannot be applied to a job, for people: RL010 where there is no such job, RL011 where it stands elsewhere. It says
-- nothing where the job is moving between two places just now: look again.
create or replace function rowlock.refuse(job bigint, verb text) returns void
language plpgsql security invoker
as $body$
declare
  place text;
begin
  select j.state into place from rowlock.jobs j where j.id = job;
  if not found then
    raise exception 'no job %', job using errcode = 'RL010';
  end if;
  if (place = 'leased' and verb = 'delayed') or place = 'case'
    or (place = 'finished' and exists (
      select from rowlock.outcome o where o.id = job and o.outcome in ('done', 'cancelled')))
  then
    raise exception 'job % is %, and cannot be %', job, place, verb using errcode = 'RL011';
  end if;
end
$body$;

-- Makes a job due at another time, wherever it waits for it: in ready, or behind the head of its group. Without a time it is
-- due now. It says when it was due before. With the owner's rights: whoever may call it can do this, with its note in the
-- audit, and nothing else to those tables.
create or replace function rowlock.delay(job bigint, until timestamptz, actor text) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  -- No further ahead than every driver can read.
  due timestamptz := least(greatest(until, clock_timestamp()), '9998-12-31T00:00:00Z');
  before timestamptz;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    place := 'ready';
    select r.due_at into before from rowlock.ready r where r.id = job for update;
    if found then
      update rowlock.ready r set due_at = due where r.id = job;
    else
      place := 'waiting';
      select w.due_at into before from rowlock.waiting w where w.id = job for update;
      if found then
        update rowlock.waiting w set due_at = due where w.id = job;
      end if;
    end if;
    if found then
      insert into rowlock.audit (actor, verb, id, detail, before, after)
      values (actor, case when until is null then 'run now' else 'delay' end, job, place, before::text, due::text);
      return before;
    end if;
    perform rowlock.refuse(job, 'delayed');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Cancels a job that is not finished. A waiting one is gone at once. Of one that runs the lease is ended, so that nothing it
-- still does counts; its worker hears of it and stops it. It says where the job stood.
create or replace function rowlock.cancel(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  why text := 'cancelled by ' || actor || coalesce(': ' || reason, '');
  turn bigint;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    place := null;
    with gone as (
      delete from rowlock.ready r where r.id = job returning r.epoch, r.attempt
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
      select job, g.epoch + 1, 0, g.attempt, 'cancelled', clock_timestamp(), clock_timestamp(), why from gone g
    )
    select 'ready' into place from gone;
    if place is null then
      with gone as (
        delete from rowlock.waiting w where w.id = job returning w.epoch, w.attempt, w.since
      ), logged as (
        insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
        select job, g.epoch + 1, 0, g.attempt, 'cancelled', g.since, clock_timestamp(), why from gone g
      )
      select 'waiting' into place from gone;
    end if;
    if place is null then
      -- It names no worker: the attempt did not end like this by its own doing, and must not take it for its commit.
      with gone as (
        delete from rowlock.lease l where l.id = job returning l.epoch, l.attempt, l.claimed_at
      ), logged as (
        insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
        select job, g.epoch, 0, g.attempt, 'cancelled', g.claimed_at, clock_timestamp(), why from gone g
      )
      select 'leased' into place from gone;
    end if;
    if place is not null then
      select j.group_no into turn from rowlock.job j where j.id = job;
      if turn is not null then
        perform rowlock.pass_turns(array[turn], array[job], null);
      end if;
      insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'cancel', job, reason, place, 'finished');
      return place;
    end if;
    perform rowlock.refuse(job, 'cancelled');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Retires a job that is not finished, by hand: it becomes a case with its whole history, its compensation is enqueued, and its
-- group goes on or stops as it would. Of one that runs the lease is ended, as by a cancel. It says where the job stood.
create or replace function rowlock.retire(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  why text := 'retired by ' || actor || coalesce(': ' || reason, '');
  turn bigint;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    with idle as (
      delete from rowlock.ready r where r.id = job returning r.epoch, r.attempt, r.attempts_max, r.queue_no, r.kind_no, r.priority
    ), waited as (
      delete from rowlock.waiting w where w.id = job
      returning w.epoch, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority
    ), ran as (
      delete from rowlock.lease l where l.id = job
      returning l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, l.claimed_at
    ), gone as (
      select
        'ready' as was, i.epoch + 1 as epoch, i.attempt, i.attempts_max, i.queue_no, i.kind_no, i.priority,
        clock_timestamp() as began, clock_timestamp() as now
      from idle i
      union all
      select 'waiting', w.epoch + 1, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority, clock_timestamp(), clock_timestamp()
      from waited w
      union all
      -- It names no worker: the attempt did not end like this by its own doing, and must not take it for its commit.
      select 'leased', l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, l.claimed_at, clock_timestamp()
      from ran l
    ), filed as (
      insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
      select
        job, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, why, g.now,
        coalesce((
          select jsonb_agg(jsonb_build_object(
            'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
            'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
          from rowlock.outcome o where o.id = job
        ), '[]') || jsonb_build_object(
          'epoch', g.epoch, 'attempt', g.attempt, 'outcome', 'retired', 'worker', 0,
          'started_at', g.began, 'ended_at', g.now, 'error', why)
      from gone g
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
      select job, g.epoch, 0, g.attempt, 'retired', g.began, g.now, why from gone g
    )
    select g.was into place from gone g;
    if place is not null then
      perform rowlock.compensate(array[job], null);
      select j.group_no into turn from rowlock.job j where j.id = job and not coalesce(j.group_stops, false);
      if turn is not null then
        perform rowlock.pass_turns(array[turn], array[job], null);
      end if;
      insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'retire', job, reason, place, 'case');
      return place;
    end if;
    perform rowlock.refuse(job, 'retired');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch: what it did once by an effect's or
-- the ledger's key is not done again, and links that it has are not made again. It waits for its turn behind its group, and for
-- its name where that is not completed. It says how the job ended before.
create or replace function rowlock.rerun(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  body record;
  last record;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  -- Two at once are one after the other, and whoever removes old bodies waits for this or was first.
  update rowlock.job j set reran_at = now where j.id = job
  returning
    j.kind || '@' || j.version as kind, j.queue, j.priority, j.attempts_max, j.waits_for, j.expires_at, j.group_no into body;
  if not found then
    raise exception 'no job %', job using errcode = 'RL010';
  end if;
  select j.state into place from rowlock.jobs j where j.id = job;
  if place <> 'finished' then
    raise exception 'job % is %, and cannot be re-run', job, place using errcode = 'RL011';
  end if;
  select o.epoch, o.outcome into last from rowlock.outcome o where o.id = job order by o.epoch desc limit 1;
  if not found or last.outcome not in ('done', 'cancelled') then
    raise exception 'the history of job % was removed, and it cannot be re-run', job using errcode = 'RL011';
  end if;
  if body.expires_at <= now then
    raise exception 'job % expired at %, and cannot be re-run', job, body.expires_at using errcode = 'RL011';
  end if;
  if exists (select from rowlock.outcome o where o.id = job and o.outcome = 'done') then
    update rowlock.job j set was_done = true where j.id = job;
  end if;
  if body.group_no is not null then
    -- The group's row is held from here on, so that nobody takes it for empty; then it is this job's turn, or it waits.
    insert into rowlock.job_group as g (no) values (body.group_no) on conflict (no) do update set head = g.head;
    insert into rowlock.waiting (
      id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
    ) values (
      job, rowlock.number_of(body.queue), rowlock.number_of(body.kind), body.priority, now, last.epoch, 0, body.attempts_max,
      'cancelled', now, body.group_no
    );
    perform rowlock.pass_turns(array[body.group_no], array[null::bigint], null);
  elsif body.waits_for is not null and not exists (select from rowlock.completion c where c.name = body.waits_for) then
    insert into rowlock.waiting (
      id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
    ) values (
      job, body.waits_for, rowlock.number_of(body.queue), rowlock.number_of(body.kind), body.priority, now, last.epoch, 0,
      body.attempts_max, body.expires_at, 'cancelled', now
    );
  else
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      rowlock.number_of(body.queue), rowlock.number_of(body.kind), false, body.priority, now, job, last.epoch, 0, body.attempts_max
    );
  end if;
  insert into rowlock.audit (actor, verb, id, detail, before, after)
  select actor, 'rerun', job, reason, last.outcome, j.state from rowlock.jobs j where j.id = job;
  return last.outcome;
end
$body$;

-- Removes what people did before the given time, and no later than 30 days ago, to jobs that are gone; so many at a time. With
-- the owner's rights: a worker can remove what is that old, and nothing else.
create or replace function rowlock.drop_audit(until timestamptz, most bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  gone bigint;
begin
  delete from rowlock.audit a where a.no in (
    select o.no from rowlock.audit o
    where o.at < least(until, clock_timestamp() - interval '30 days')
      and not exists (select from rowlock.job j where j.id = o.id)
    order by o.no limit most
  );
  get diagnostics gone = row_count;
  return gone;
end
$body$;

revoke all on function rowlock.refuse from public;
revoke all on function rowlock.delay from public;
revoke all on function rowlock.cancel from public;
revoke all on function rowlock.drop_audit from public;
revoke all on function rowlock.retire from public;
revoke all on function rowlock.rerun from public;
