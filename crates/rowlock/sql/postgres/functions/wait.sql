-- The protocol for every language: completing the names that jobs wait for.

-- Completes a name once, in the caller's transaction, with an answer for the jobs that wait for it, now or later. It
-- returns how many jobs went to ready, or null if the name was completed before.
create or replace function rowlock.complete_v1(name text, answer json default null) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  wanted constant text := rowlock.key_option(json_build_object('name', complete_v1.name), 'name');
begin
  if wanted is null then
    raise exception 'name: missing; give one' using errcode = 'RL012';
  end if;
  if complete_v1.answer is not null then
    perform rowlock.check_json('answer', complete_v1.answer);
  end if;
  insert into rowlock.completion (name, answer, completed_at) values (wanted, complete_v1.answer, clock_timestamp())
  on conflict do nothing;
  if not found then
    return null;
  end if;
  return coalesce(cardinality(rowlock.end_waits(array(select w.id from rowlock.waiting w where w.name = wanted), null)), 0);
end
$body$;

revoke all on function rowlock.complete_v1 from public;
