-- Operator commands for cases.

-- Changes the payload of a case's job, and keeps the old payload in the audit. It says whether there was such a case.
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
  -- A caller that reopens or closes the case waits for this transaction, or was faster.
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

-- Closes a case for good: its job is finished, as cancelled. A group that the case has stopped goes on. RL010 if there
-- is no such job, RL011 if the job is not a case.
create or replace function rowlock.close_case(job bigint, reason text, actor text) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $body$ select rowlock.end_by_hand(job, 'close', 'closed', 'cancelled', reason, actor) $body$;

-- Puts a job that is in no place back, with all its attempts. The job goes to ready, or to waiting if its name is not
-- completed or if it must wait for its turn in its group. It says where the job is now.
create or replace function rowlock.place_again(
  job bigint, epoch bigint, queue_no bigint, kind_no bigint, priority smallint, attempts_max int
) returns text
language plpgsql security invoker
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  body record;
  turn record;
  waits boolean := false;
begin
  select j.waits_for, j.expires_at, j.group_no into body from rowlock.job j where j.id = job;
  if body.group_no is not null then
    -- Holds the group's row from here on, so that no other transaction treats the group as empty.
    insert into rowlock.job_group as g (no) values (body.group_no) on conflict (no) do update set head = g.head
    returning g.head, g.paused into turn;
    -- The head of a group that the case has stopped still has its turn.
    waits := turn.head is distinct from job or turn.paused;
    update rowlock.job_group g set head = null where g.no = body.group_no and g.head = job and waits;
  elsif body.waits_for is not null then
    waits := not exists (select from rowlock.completion c where c.name = body.waits_for);
  end if;
  if not waits then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (queue_no, kind_no, false, priority, now, job, epoch, 0, attempts_max);
    return 'ready';
  end if;
  insert into rowlock.waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
  ) values (
    job, body.waits_for, queue_no, kind_no, priority, now, epoch, 0, attempts_max,
    case when body.group_no is null then body.expires_at end, 'cancelled', now, body.group_no
  );
  if body.group_no is not null then
    perform rowlock.pass_turns(array[body.group_no], array[null::bigint], null);
  end if;
  return case when exists (select from rowlock.ready r where r.id = job) then 'ready' else 'waiting' end;
end
$body$;

-- Reopens a case with all its attempts. The epoch keeps rising, so no old token fits again. It says where the job is
-- now. RL010 if there is no such job, RL011 if the job is not a case.
create or replace function rowlock.reopen(job bigint, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  file record;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  delete from rowlock.case_file c where c.id = job
  returning c.epoch, c.attempts_max, c.queue_no, c.kind_no, c.priority into file;
  if not found then
    perform rowlock.refuse(job, 'closed');
  end if;
  place := rowlock.place_again(job, file.epoch, file.queue_no, file.kind_no, file.priority, file.attempts_max);
  insert into rowlock.audit (actor, verb, id, before, after) values (actor, 'reopen', job, 'case', place);
  return place;
end
$body$;

revoke all on function rowlock.place_again, rowlock.reopen, rowlock.close_case, rowlock.edit_case from public;
