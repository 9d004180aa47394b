-- The protocol for every language: how a worker claims.

-- Claims up to the given number of due jobs of a queue and of these kinds under the worker's lease, most urgent first.
-- A kind is a name, or a name with the highest payload version that is understood, such as charge@2.
-- Nothing is claimed from what is paused, nor while one of the named breakers is not closed.
-- Each job comes with its token. RL001 if the worker was declared dead. Commit the claim before you start the work.
-- A job that was lost is claimed alone, by a worker that holds nothing. If other jobs wait too, chance decides between
-- the lost job and the others.
create or replace function rowlock.claim_v1(worker bigint, queue text, kinds text[], most int default 1, breakers text[] default null)
returns table (
  token text, id bigint, uid uuid, kind text, version int, payload json, attempt int, attempts_max int, priority int, in_group text,
  chain bigint, "position" int, claimed_at timestamptz, created_at timestamptz, trace text
)
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off
as $body$
#variable_conflict use_column
declare
  now constant timestamptz := clock_timestamp();
  here constant bigint := rowlock.number_of(rowlock.name_option(json_build_object('queue', claim_v1.queue), 'queue', ''));
  places constant int := least(claim_v1.most, 1000);
  lanes bigint[];
  tries boolean[] := '{f}';
  apart boolean;
  lone timestamptz;
  odd text;
  hands record;
  taken bigint[];
  late record;
begin
  if claim_v1.kinds is null or claim_v1.kinds = '{}' or exists (
    select from unnest(claim_v1.kinds) k where coalesce(k !~ '^[A-Za-z0-9_.:/-]{1,100}(@([1-9][0-9]{0,5}|1000000))?$', true)
  ) then
    raise exception 'kinds: give names such as charge, or charge@2' using errcode = 'RL012';
  end if;
  if places is null or places < 1 then
    raise exception 'most: % is not a whole number from 1', claim_v1.most using errcode = 'RL012';
  end if;
  perform from rowlock.worker w where w.id = claim_v1.worker and not w.dead for key share;
  if not found then
    raise exception 'worker % was declared dead; join again', claim_v1.worker using errcode = 'RL001';
  end if;
  if exists (select from rowlock.setting s where s.name = 'pause:queue:' || claim_v1.queue) then
    return;
  end if;
  if claim_v1.breakers is not null then
    -- A caller that opens a breaker waits for this claim. The next read is newer than any transaction that was waited
    -- for.
    perform from rowlock.breaker b where b.name = any (claim_v1.breakers) order by b.name for share;
    select coalesce(n.name, 'null') into odd from unnest(claim_v1.breakers) as n (name)
    where not exists (select from rowlock.breaker b where b.name = n.name) limit 1;
    if found then
      raise exception 'breakers: no breaker "%"; a breaker exists once a worker of the library has bound a kind to it', left(odd, 40)
        using errcode = 'RL012';
    end if;
    if exists (select from rowlock.breaker b where b.name = any (claim_v1.breakers) and b.state <> 'closed') then
      return;
    end if;
  end if;
  select array_agg(rowlock.number_of(split_part(k, '@', 1) || '@' || v)) into lanes
  from unnest(claim_v1.kinds) k
  cross join generate_series(1, coalesce(nullif(split_part(k, '@', 2), ''), '1')::int) v
  where not exists (select from rowlock.setting s where s.name = 'pause:kind:' || split_part(k, '@', 1));
  -- A job that was lost once runs alone: it is the only job of a worker that holds nothing.
  select min(r.due_at) into lone
  from unnest(lanes) as k (no) cross join generate_series(1, 5) as p (no)
  cross join lateral (
    select r.due_at from rowlock.ready r
    where r.queue_no = here and r.kind_no = k.no and r.alone and r.priority = p.no and r.due_at <= now
      and (
        select not exists (select from rowlock.job_group g where g.no = j.group_no and g.paused) from rowlock.job j where j.id = r.id
      )
    order by r.due_at limit 1
  ) r;
  if lone is not null then
    -- Another claim of the same worker may be taking the job. The next read is newer than that claim.
    perform from rowlock.worker w where w.id = claim_v1.worker for no key update;
  end if;
  -- Claims nothing beside a job that runs alone, until that job has run for a whole lease.
  perform from rowlock.worker w join rowlock.lease l on l.id = w.alone
  where w.id = claim_v1.worker and l.worker = w.id and l.alone and l.claimed_at > now - w.lease_ms * interval '1 millisecond';
  if found then
    return;
  end if;
  if lone is not null then
    select count(*) as leases, min(l.claimed_at) as since into hands from rowlock.lease l where l.worker = claim_v1.worker;
    if hands.leases = 0 then
      tries := case when random() < 0.5 then '{t,f}' else '{f,t}' end;
    elsif lone < now - interval '1 second' and hands.since > now - interval '1 minute' then
      -- The worker must finish what it holds before it can run a job alone, unless a long job keeps it busy.
      return;
    end if;
  end if;
  foreach apart in array tries loop
    with gone as (
      delete from rowlock.ready where ctid = any (array(
        select spot.ctid from (
          select due.ctid
          from (
            -- Random order, so that no kind always comes before the others.
            select p.no as priority, k.no as kind_no from generate_series(1, 5) as p (no) cross join unnest(lanes) as k (no)
            order by 1, random()
          ) lane
          cross join lateral (
            select r.ctid from rowlock.ready r
            where r.queue_no = here and r.kind_no = lane.kind_no and r.alone = apart and r.priority = lane.priority and r.due_at <= now
              -- The head of a paused group may be back in ready after an attempt.
              and (
                select not exists (select from rowlock.job_group g where g.no = j.group_no and g.paused)
                from rowlock.job j where j.id = r.id
              )
            order by r.due_at, r.id
            limit case when apart then 1 else places end
            for update of r skip locked
          ) due
          limit case when apart then 1 else places end
        ) spot
      ))
      returning id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority
    ), held as (
      insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
      select g.id, g.epoch + 1, claim_v1.worker, g.attempt + 1, g.attempts_max, g.queue_no, g.kind_no, g.alone, g.priority, now
      from gone g
    )
    select array_agg(g.id) into taken from gone g;
    exit when taken is not null;
  end loop;
  if apart and taken is not null then
    update rowlock.worker w set alone = taken[1] where w.id = claim_v1.worker;
  end if;
  for late in
    select l.id, l.epoch from rowlock.lease l join rowlock.job j on j.id = l.id
    where l.id = any (taken) and j.expires_at <= now
  loop
    perform rowlock.end_lease(
      late.id, late.epoch, claim_v1.worker, 'cancelled', 'finished', 0, 'expired before it started');
  end loop;
  return query
  select
    l.id || '-' || l.epoch || '-' || l.worker, j.id, j.uid, j.kind, j.version, j.payload, l.attempt, l.attempts_max, l.priority::int,
    j.in_group, j.chain, j.position, l.claimed_at, j.created_at, j.trace
  from rowlock.lease l join rowlock.job j on j.id = l.id
  where l.id = any (taken) and l.worker = claim_v1.worker
  order by l.priority, l.id;
end
$body$;

revoke all on function rowlock.claim_v1 from public;
