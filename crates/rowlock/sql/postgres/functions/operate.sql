-- Operator commands for jobs. Each command is recorded in the audit.

-- Says why a command cannot be applied to a job. RL010 if there is no such job, RL011 if the job is in another place.
-- It raises nothing while the job is moving between two places: look again.
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
  if verb = 'closed' then
    raise exception 'job % is not a case', job using errcode = 'RL011';
  end if;
  if (place = 'leased' and verb = 'delayed') or place = 'case'
    or (place = 'finished' and exists (
      select from rowlock.outcome o where o.id = job and o.outcome in ('done', 'cancelled')))
  then
    raise exception 'job % is %, and cannot be %', job, place, verb using errcode = 'RL011';
  end if;
end
$body$;

-- Makes a job due at another time, in ready or behind the head of its group. Without a time the job is due now. It says
-- when the job was due before.
-- It runs with the owner's rights: its callers can do only this to those tables, and each call is recorded in the
-- audit.
create or replace function rowlock.delay(job bigint, until timestamptz, actor text) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  -- No later than every driver can read.
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

-- Puts a job that is not finished under a lease of worker 0, to be ended like any other attempt. The job may be in any
-- place; a case is taken only to be closed.
-- If the job is running, worker 0 takes over the lease: the attempt did not end by itself, and must not mistake this
-- outcome for its own commit.
-- It says where the job was. RL010 and RL011 as in `rowlock.refuse`.
create or replace function rowlock.seize(job bigint, verb text, out place text, out epoch bigint)
language plpgsql security invoker
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
begin
  for round in 1..20 loop
    with idle as (
      delete from rowlock.ready r where r.id = job and verb <> 'closed' returning r.*
    ), waited as (
      delete from rowlock.waiting w where w.id = job and verb <> 'closed' returning w.*
    ), filed as (
      delete from rowlock.case_file c where c.id = job and verb = 'closed' returning c.*
    ), held as (
      insert into rowlock.lease as l (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
      select i.id, i.epoch + 1, 0, i.attempt, i.attempts_max, i.queue_no, i.kind_no, false, i.priority, now from idle i
      union all
      select
        w.id, w.epoch + 1, 0, w.attempt, w.attempts_max, w.queue_no, w.kind_no, false, w.priority,
        case verb when 'cancelled' then w.since else now end
      from waited w
      union all
      select c.id, c.epoch + 1, 0, c.attempt, c.attempts_max, c.queue_no, c.kind_no, false, c.priority, now from filed c
      returning l.epoch
    ), ran as (
      update rowlock.lease l set worker = 0 where l.id = job and verb <> 'closed' returning l.epoch
    )
    select
      case
        when exists (select from idle) then 'ready'
        when exists (select from waited) then 'waiting'
        when exists (select from filed) then 'case'
        else 'leased'
      end, t.epoch
    into place, epoch
    from (select h.epoch from held h union all select r.epoch from ran r) t;
    if found then
      return;
    end if;
    perform rowlock.refuse(job, verb);
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Ends a job for an operator, as cancelled or retired, from whatever place it is in, and records it in the audit. It
-- says where the job was.
create or replace function rowlock.end_by_hand(job bigint, verb text, said text, ended text, reason text, actor text) returns text
language plpgsql security invoker
as $body$
declare
  was record;
  place constant text := case ended when 'retired' then 'case' else 'finished' end;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  select s.place, s.epoch into was from rowlock.seize(job, said) s;
  perform rowlock.end_lease(job, was.epoch, 0, ended, place, 0, said || ' by ' || actor || coalesce(': ' || reason, ''));
  insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, verb, job, reason, was.place, place);
  return was.place;
end
$body$;

-- Cancels a job that is not finished. A waiting job is removed immediately. If the job is running, its lease is ended,
-- so that nothing it still does counts; its worker learns of it and stops the handler. It says where the job was.
create or replace function rowlock.cancel(job bigint, reason text, actor text) returns text
language sql security definer set search_path = pg_catalog, pg_temp
as $body$ select rowlock.end_by_hand(job, 'cancel', 'cancelled', 'cancelled', reason, actor) $body$;

-- Retires a job that is not finished, for an operator. The job becomes a case with its history, its compensation is
-- enqueued, and its group goes on or stops as after any retirement. If the job is running, its lease is ended, as by a
-- cancel. It says where the job was.
create or replace function rowlock.retire(job bigint, reason text, actor text) returns text
language sql security definer set search_path = pg_catalog, pg_temp
as $body$ select rowlock.end_by_hand(job, 'retire', 'retired', 'retired', reason, actor) $body$;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch. Work that was done once
-- under an effect's key or a ledger key is not done again. Links that the job has are not made again.
-- The job waits for its turn in its group, and for its name if that is not completed. It says how the job ended before.
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
  -- Two concurrent re-runs of a job run one after the other. A sweep that removes old bodies waits for this
  -- transaction, or was first.
  update rowlock.job j set reran_at = now where j.id = job
  returning j.kind || '@' || j.version as kind, j.queue, j.priority, j.attempts_max, j.expires_at into body;
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
  perform rowlock.place_again(
    job, last.epoch, rowlock.number_of(body.queue), rowlock.number_of(body.kind), body.priority, body.attempts_max);
  insert into rowlock.audit (actor, verb, id, detail, before, after)
  select actor, 'rerun', job, reason, last.outcome, j.state from rowlock.jobs j where j.id = job;
  return last.outcome;
end
$body$;

-- Removes audit entries about jobs that are gone, a bounded number per call: from before the given time, and at least
-- 30 days old. It runs with the owner's rights: a worker can remove only entries that old.
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

revoke all on function rowlock.refuse, rowlock.delay, rowlock.seize, rowlock.end_by_hand, rowlock.cancel,
  rowlock.drop_audit, rowlock.retire, rowlock.rerun from public;
