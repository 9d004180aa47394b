-- What people do to a case.

-- Gives the job of a case another payload, and keeps the old one in the audit. It says whether there was such a case.
create or replace function rowlock.edit_case(job bigint, payload json, actor text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  old text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  -- Whoever reopens or closes it waits for this, or was quicker.
  perform from rowlock.case_file c where c.id = job for update;
  if not found then
    return false;
  end if;
  select j.payload::text into old from rowlock.job j where j.id = job;
  update rowlock.job j set payload = edit_case.payload where j.id = job;
  insert into rowlock.audit (actor, verb, id, before, after) values (actor, 'edit', job, old, edit_case.payload::text);
  return true;
end
$body$;

-- Closes a case for good: its job is finished, as cancelled. What it has stopped goes on. RL010 where there is no such job,
-- RL011 where it is no case.
create or replace function rowlock.close_case(job bigint, reason text, actor text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turn bigint;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  with gone as (
    delete from rowlock.case_file c where c.id = job returning c.epoch, c.attempt, c.retired_at
  )
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    job, g.epoch + 1, 0, g.attempt, 'cancelled', clock_timestamp(), clock_timestamp(),
    'closed by ' || actor || coalesce(': ' || reason, '')
  from gone g;
  if not found then
    if not exists (select from rowlock.job j where j.id = job) then
      raise exception 'no job %', job using errcode = 'RL010';
    end if;
    raise exception 'job % is not a case', job using errcode = 'RL011';
  end if;
  select j.group_no into turn from rowlock.job j where j.id = job;
  if turn is not null then
    perform rowlock.pass_turns(array[turn], array[job], null);
  end if;
  insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'close', job, reason, 'case', 'finished');
end
$body$;

-- Puts a case back with all its attempts: to ready, or to wait for its name where that is not completed, or for its turn behind
-- its group. The epoch goes on rising, so no old token fits again. It says where the job stands now; RL010 where there is no
-- such job, RL011 where it is no case.
create or replace function rowlock.reopen(job bigint, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  file record;
  body record;
  turn record;
  place text := 'ready';
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  delete from rowlock.case_file c where c.id = job
  returning c.epoch, c.attempts_max, c.queue_no, c.kind_no, c.priority into file;
  if not found then
    if not exists (select from rowlock.job j where j.id = job) then
      raise exception 'no job %', job using errcode = 'RL010';
    end if;
    raise exception 'job % is not a case', job using errcode = 'RL011';
  end if;
  select j.waits_for, j.expires_at, j.group_no into body from rowlock.job j where j.id = job;
  if body.group_no is not null then
    -- The group's row is held from here on, so that nobody takes it for empty.
    insert into rowlock.job_group as g (no) values (body.group_no) on conflict (no) do update set head = g.head
    returning g.head, g.paused into turn;
    -- The head of a group that it has stopped still has its turn.
    if turn.head is distinct from job or turn.paused then
      place := 'waiting';
      update rowlock.job_group g set head = null where g.no = body.group_no and g.head = job;
    end if;
  elsif body.waits_for is not null and not exists (select from rowlock.completion c where c.name = body.waits_for) then
    place := 'waiting';
  end if;
  if place = 'ready' then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (file.queue_no, file.kind_no, false, file.priority, now, job, file.epoch, 0, file.attempts_max);
  else
    insert into rowlock.waiting (
      id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
    ) values (
      job, case when body.group_no is null then body.waits_for end, file.queue_no, file.kind_no, file.priority, now, file.epoch, 0,
      file.attempts_max, case when body.group_no is null then body.expires_at end, 'cancelled', now, body.group_no
    );
    if body.group_no is not null then
      perform rowlock.pass_turns(array[body.group_no], array[null::bigint], null);
      place := case when exists (select from rowlock.ready r where r.id = job) then 'ready' else 'waiting' end;
    end if;
  end if;
  insert into rowlock.audit (actor, verb, id, before, after) values (actor, 'reopen', job, 'case', place);
  return place;
end
$body$;

revoke all on function rowlock.reopen from public;
revoke all on function rowlock.close_case from public;
revoke all on function rowlock.edit_case from public;
