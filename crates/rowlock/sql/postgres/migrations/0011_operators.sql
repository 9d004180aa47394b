-- How many jobs a deed was about, and how it was before and after.
alter table rowlock.audit add column jobs bigint not null default 1, add column before text, add column after text;

-- Why a verb cannot be applied to a job, for people: RL010 where there is no such job, RL011 where it stands elsewhere. It says
-- nothing where the job is moving between two places just now: look again.
create function rowlock.refuse(job bigint, verb text) returns void
language plpgsql security invoker
as $body$
declare
  place text;
begin
  select j.state into place from rowlock.jobs j where j.id = job;
  if not found then
    raise exception 'no job %', job using errcode = 'RL010';
  end if;
  if (place in ('leased', 'case') and verb <> 'cancelled') or place = 'case'
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
create function rowlock.delay(job bigint, until timestamptz, actor text) returns timestamptz
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
    raise exception 'say who does it' using errcode = 'RL011';
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
  raise exception 'job % does not stand still; try again', job using errcode = 'RL011';
end
$body$;

-- Cancels a job that is not finished. A waiting one is gone at once. Of one that runs the lease is ended, so that nothing it
-- still does counts; its worker hears of it and stops it. It says where the job stood.
create function rowlock.cancel(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  why text := 'cancelled by ' || actor || coalesce(': ' || reason, '');
  turn bigint;
  place text;
begin
  if actor is null then
    raise exception 'say who does it' using errcode = 'RL011';
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
  raise exception 'job % does not stand still; try again', job using errcode = 'RL011';
end
$body$;

revoke all on function rowlock.refuse(bigint, text) from public;
revoke all on function rowlock.delay(bigint, timestamptz, text) from public;
revoke all on function rowlock.cancel(bigint, text, text) from public;
