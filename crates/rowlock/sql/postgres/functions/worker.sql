-- The protocol for every language: worker processes, and recovery from lost ones.

-- Registers a worker process and returns its number, which its claims and tokens carry. The worker must send a
-- heartbeat within its lease.
create or replace function rowlock.join_v1(name text, lease_ms int default 30000) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  -- Random: a number that is used again could make an old token fit.
  worker constant bigint := abs(('x' || encode(substring(sha256(uuid_send(gen_random_uuid())) from 1 for 8), 'hex'))::bit(64)::bigint >> 1) + 1;
begin
  if coalesce(octet_length(name), 0) not between 1 and 200 then
    raise exception 'name: use a name of 1 to 200 bytes for the worker' using errcode = 'RL012';
  end if;
  if lease_ms is null or lease_ms not between 1000 and 3600000 then
    raise exception 'lease_ms: % is not a whole number from 1000 to 3600000', lease_ms using errcode = 'RL012';
  end if;
  insert into rowlock.worker (id, name, lease_ms, beat, started_at)
  values (worker, join_v1.name, join_v1.lease_ms, clock_timestamp(), clock_timestamp());
  return worker;
end
$body$;

-- Renews everything that a worker holds. RL001 if the worker was declared dead: it holds nothing any more, and must
-- join again.
create or replace function rowlock.beat_v1(worker bigint) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
begin
  update rowlock.worker w set beat = clock_timestamp() where w.id = worker and not w.dead;
  if not found then
    raise exception 'worker % was declared dead; join again', worker using errcode = 'RL001';
  end if;
end
$body$;

-- Removes a worker from the list. Recovery ends its remaining leases immediately.
create or replace function rowlock.leave_v1(worker bigint) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  update rowlock.worker w set dead = true where w.id = worker and not w.dead
$body$;

-- Declares every worker dead that sends no heartbeats any more, and ends the leases of dead workers. Each attempt stays
-- counted, and the job is due again, or becomes a case if its attempts are used up.
-- Workers of the library do so by themselves; call it if there are none. It says how many leases it ended.
create or replace function rowlock.recover_v1(most int default 1000) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off
as $body$
declare
  lost constant text := 'worker lost: it stopped renewing its lease';
  ended bigint := 0;
  one record;
  turn bigint;
  groups bigint[];
  empty bigint[];
  gone bigint[];
begin
  if recover_v1.most is null or recover_v1.most < 1 then
    raise exception 'most: % is not a whole number from 1', recover_v1.most using errcode = 'RL012';
  end if;
  -- No worker could send heartbeats while the server was down. A worker whose heartbeat is not committed is left to the
  -- next round.
  update rowlock.worker w set dead = true
  where w.id in (
    select s.id from rowlock.worker s
    where not s.dead and greatest(s.beat, pg_postmaster_start_time()) < clock_timestamp() - s.lease_ms * interval '1 millisecond'
    for no key update skip locked
  );
  for one in
    select l.id, l.epoch, l.worker, l.attempt < l.attempts_max as again
    from rowlock.lease l join rowlock.worker w on w.id = l.worker
    where w.dead
    limit recover_v1.most
    for update of l skip locked
  loop
    if not one.again then
      -- The turn of the job's group is passed on. If another transaction has the group locked, this does not wait.
      select j.group_no into turn from rowlock.job j where j.id = one.id and not coalesce(j.group_stops, false);
      perform from rowlock.job_group g where g.no = turn for no key update skip locked;
      continue when not found and exists (select from rowlock.job_group g where g.no = turn);
    end if;
    perform rowlock.end_lease(one.id, one.epoch, one.worker, 'lost', case when one.again then 'ready' else 'case' end, 0, lost);
    ended := ended + 1;
  end loop;
  -- Names that were completed while another transaction began to wait for them.
  perform rowlock.end_waits(array(
    select w.id from rowlock.waiting w join rowlock.completion c on c.name = w.name
    where w.name is not null
    limit recover_v1.most
    for update of w skip locked
  ), null);
  perform rowlock.withdraw(recover_v1.most, null, null);
  -- Turns that were passed on while another transaction added a job to the group, so that no job got the turn.
  select array_agg(v.no) into groups
  from (
    select g.no from rowlock.job_group g
    where g.vacant and not g.paused and exists (select from rowlock.waiting w where w.group_no = g.no)
    limit recover_v1.most
    for no key update of g skip locked
  ) v;
  if groups is not null then
    perform rowlock.pass_turns(groups, array_fill(null::bigint, array[cardinality(groups)]), null);
  end if;
  -- The next statements read again after they took locks, and must see what was committed meanwhile.
  if current_setting('transaction_isolation') <> 'read committed' then
    return ended;
  end if;
  -- Groups that have no job, and that no transaction is about to join.
  select array_agg(v.no) into empty
  from (
    select g.no from rowlock.job_group g
    where g.vacant and not g.paused and not exists (select from rowlock.waiting w where w.group_no = g.no)
    limit recover_v1.most
    for update of g skip locked
  ) v;
  if empty is not null then
    delete from rowlock.job_group g
    where g.no = any (empty) and g.vacant and not g.paused and not exists (select from rowlock.waiting w where w.group_no = g.no);
  end if;
  -- Dead workers that hold nothing and have no claim in flight.
  select array_agg(v.id) into gone from (select w.id from rowlock.worker w where w.dead for update skip locked) v;
  if gone is not null then
    with holding as materialized (select distinct l.worker from rowlock.lease l where l.worker = any (gone))
    delete from rowlock.worker w where w.id = any (gone) and not exists (select from holding h where h.worker = w.id);
  end if;
  return ended;
end
$body$;

revoke all on function rowlock.join_v1, rowlock.beat_v1, rowlock.leave_v1, rowlock.recover_v1 from public;
