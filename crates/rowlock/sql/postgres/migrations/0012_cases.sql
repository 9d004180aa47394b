-- Cases that failed alike, whose they are, and what was found out about them. Workers name the error of a case within
-- seconds: until then it is null.
alter table rowlock.case_file add column error_no bigint, add column owner text, add column note text;
create index case_file_error on rowlock.case_file (error_no, id);

-- Each error that cases have or had: their reasons without what differs from job to job.
create table rowlock.case_error (
  no bigint primary key,
  error text not null,
  first_seen timestamptz not null,
  last_seen timestamptz not null,
  seen bigint not null
);

-- Removes what people did before the given time, and no later than 30 days ago, to jobs that are gone; so many at a time. With
-- the owner's rights: a worker can remove what is that old, and nothing else.
create function rowlock.drop_audit(until timestamptz, most bigint) returns bigint
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

-- Gives the job of a case another payload, and keeps the old one in the audit. It says whether there was such a case.
create function rowlock.edit_case(job bigint, payload json, actor text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  old text;
begin
  if actor is null then
    raise exception 'say who does it' using errcode = 'RL011';
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
create function rowlock.close_case(job bigint, reason text, actor text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turn bigint;
begin
  if actor is null then
    raise exception 'say who does it' using errcode = 'RL011';
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
    raise exception 'job % is no case', job using errcode = 'RL011';
  end if;
  select j.group_no into turn from rowlock.job j where j.id = job;
  if turn is not null then
    perform rowlock.pass_turns(array[turn], array[job], null);
  end if;
  insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'close', job, reason, 'case', 'finished');
end
$body$;

revoke all on function rowlock.close_case(bigint, text, text) from public;
revoke all on function rowlock.edit_case(bigint, json, text) from public;
revoke all on function rowlock.drop_audit(timestamptz, bigint) from public;
