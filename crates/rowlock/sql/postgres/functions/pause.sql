-- Pausing and resuming.

-- Pauses a queue, a kind or a group, given as queue:mail, kind:send-mail or group:account:42. Its jobs are not claimed
-- until it is resumed; workers notice within a second. Running jobs go on. It says whether the target was running
-- before.
create or replace function rowlock.pause(target text, actor text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turn bigint;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  if coalesce(target !~ '^(queue|kind|group):[A-Za-z0-9_.:/-]{1,100}$', true) then
    raise exception '% is not a valid target; use queue:NAME, kind:NAME or group:NAME', coalesce(quote_literal(left(target, 120)), 'null')
      using errcode = 'RL012';
  end if;
  insert into rowlock.setting (name, value, changed_at, changed_by) values ('pause:' || target, '', clock_timestamp(), actor)
  on conflict (name) do nothing;
  if not found then
    return false;
  end if;
  if target like 'group:%' then
    turn := rowlock.number_of(substr(target, 7));
    insert into rowlock.job_group as g (no, paused) values (turn, true) on conflict (no) do update set paused = true;
    -- If a worker is claiming the head right now, the sweep looks again.
    perform rowlock.withdraw(1, turn, null);
  end if;
  insert into rowlock.audit (actor, verb, id, detail) values (actor, 'pause', 0, target);
  return true;
end
$body$;

-- Resumes what was paused, within a second. It says whether it was paused.
create or replace function rowlock.resume(target text, actor text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turn bigint;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  delete from rowlock.setting s where s.name = 'pause:' || target;
  if not found then
    return false;
  end if;
  if target like 'group:%' then
    turn := rowlock.number_of(substr(target, 7));
    insert into rowlock.job_group as g (no) values (turn) on conflict (no) do update set paused = false;
    perform rowlock.pass_turns(array[turn], array[null::bigint], null);
  end if;
  insert into rowlock.audit (actor, verb, id, detail) values (actor, 'resume', 0, target);
  return true;
end
$body$;

revoke all on function rowlock.pause, rowlock.resume from public;
