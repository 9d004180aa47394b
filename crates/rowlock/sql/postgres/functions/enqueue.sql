-- The protocol for every language: enqueueing. A function that ends in _v1 does not change; a change comes as a new
-- _v2.
-- Each function runs with the caller's rights, in the caller's transaction, whatever the search path.
-- RL001: the token no longer holds. RL003: the key is held for another request. RL010: no such job. RL011: the job is
-- in another place. RL012: bad input, with the field.

-- Takes a key for a new job. It returns the job's id and true if the key was free, else the id of the job that holds
-- it.
create or replace function rowlock.take_key(
  wanted text, print bytea, hold_for text, period interval, out job bigint, out is_new boolean
)
language plpgsql security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  held record;
begin
  for round in 1..20 loop
    insert into rowlock.job_key (key, id, fingerprint, hold, expires_at, made_at)
    values (wanted, nextval('rowlock.job_id'), print, hold_for, now + period, now)
    on conflict (key) do nothing
    returning id into job;
    if found then
      is_new := true;
      return;
    end if;
    select
      k.id, k.fingerprint, k.hold, coalesce(k.expires_at <= now, false) as passed,
      exists (select from rowlock.ready r where r.id = k.id) or exists (select from rowlock.lease l where l.id = k.id)
        or exists (select from rowlock.waiting w where w.id = k.id)
        or exists (select from rowlock.case_file c where c.id = k.id) as in_a_place
    into held
    from rowlock.job_key k where k.key = wanted;
    -- The key was removed meanwhile.
    continue when not found;
    if not held.in_a_place and (held.hold = 'open' or (held.hold = 'period' and held.passed)) then
      update rowlock.job_key k
      set id = nextval('rowlock.job_id'), fingerprint = print, hold = hold_for, expires_at = now + period, made_at = now
      where k.key = wanted and k.id = held.id
      returning k.id into job;
      -- Another transaction was faster.
      continue when not found;
      is_new := true;
      return;
    end if;
    if held.fingerprint is distinct from print then
      raise exception 'key "%" is already used by job % for a different request', wanted, held.id using errcode = 'RL003';
    end if;
    job := held.id;
    is_new := false;
    return;
  end loop;
  raise exception 'key "%" keeps changing; try again', wanted using errcode = '40001';
end
$body$;

-- Turns what callers give, {"kind", "payload", …}, into a job in the form that the library writes too (`Encoded`).
-- Times are microseconds since 1970, and values that are JSON are stored as text.
create or replace function rowlock.encode(
  kind text, payload json, given json, known text[], in_chain bigint default null, at_position int default 0, by_trace text default null
) returns jsonb
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  named constant text := rowlock.name_option(json_build_object('kind', encode.kind), 'kind', '');
  queue constant text := rowlock.name_option(given, 'queue', 'default');
  version constant int := rowlock.number_option(given, 'version', 1, 1, 1000000);
  body constant json := coalesce(encode.payload, '{}');
  named_group constant text := case when given ->> 'group' is not null then rowlock.name_option(given, 'group', '') end;
begin
  perform rowlock.check_options(given, known);
  perform rowlock.check_json('payload', body);
  return jsonb_strip_nulls(jsonb_build_object(
    'uid', gen_random_uuid(), 'kind', named, 'kind_no', rowlock.number_of(named || '@' || version), 'version', version,
    'queue', queue, 'queue_no', rowlock.number_of(queue), 'priority', rowlock.number_option(given, 'priority', 3, 1, 5),
    'attempts_max', rowlock.number_option(given, 'attempts', 10, 1, 10000), 'payload', body::text,
    'tags', rowlock.tags_option(given)::text, 'chain', in_chain, 'position', at_position,
    -- Untriggered: one day after the latest time that a caller can ask for.
    'due_us', (extract(epoch from case given ->> 'on_trigger' when 'true' then '9999-01-02T00:00:00Z'::timestamptz
      else rowlock.time_option(given, 'at') end) * 1000000)::bigint,
    'delay_us', 1000 * rowlock.number_option(given, 'delay_ms', 0, 0, 316224000000),
    'expires_us', (extract(epoch from rowlock.time_option(given, 'expires')) * 1000000)::bigint,
    'if_retired', case when json_typeof(given -> 'if_retired') = 'object' then rowlock.encode(
      given -> 'if_retired' ->> 'kind', given -> 'if_retired' -> 'payload', given -> 'if_retired',
      array['kind', 'payload', 'queue', 'priority', 'attempts', 'version', 'tags'])::text end,
    'trace', coalesce(by_trace, given ->> 'trace'), 'waits_for', rowlock.key_option(given, 'waits_for'),
    'limit_us', 1000 * rowlock.number_option(given, 'wait_limit_ms', null, 0, 316224000000),
    'in_group', named_group, 'group_no', rowlock.number_of(named_group),
    'group_stops', case when named_group is not null then coalesce(given ->> 'group_stops' = 'true', false) end));
end
$body$;

-- Inserts one job into ready or waiting, under the id that was reserved for it, if any. A compensation becomes the link
-- after the job that was retired. It says which queue got the job.
create or replace function rowlock.put_job(
  draft jsonb, at timestamptz, reserved bigint default null, waits boolean default false, in_chain bigint default null,
  at_position int default null, by_trace text default null
) returns bigint
language plpgsql security invoker
as $body$
declare
  now constant timestamptz := coalesce(at, clock_timestamp());
  job constant bigint := coalesce(reserved, nextval('rowlock.job_id'));
  queue_no constant bigint := draft ->> 'queue_no';
  due constant timestamptz := greatest(now, coalesce(
    'epoch'::timestamptz + (draft ->> 'due_us')::bigint * interval '1 us', now + (draft ->> 'delay_us')::bigint * interval '1 us'));
  expires constant timestamptz := 'epoch'::timestamptz + (draft ->> 'expires_us')::bigint * interval '1 us';
  limit_at timestamptz;
begin
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, trace,
    created_at, waits_for, in_group, group_no, group_stops
  ) values (
    job, (draft ->> 'uid')::uuid, draft ->> 'kind', (draft ->> 'version')::int, draft ->> 'queue', (draft ->> 'priority')::smallint,
    (draft ->> 'attempts_max')::int, (draft ->> 'payload')::json, (draft ->> 'tags')::jsonb,
    coalesce(in_chain, (draft ->> 'chain')::bigint), coalesce(at_position, (draft ->> 'position')::int), expires,
    (draft ->> 'if_retired')::json, coalesce(by_trace, draft ->> 'trace'), now, draft ->> 'waits_for', draft ->> 'in_group',
    (draft ->> 'group_no')::bigint, (draft ->> 'group_stops')::boolean
  );
  if not waits then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      queue_no, (draft ->> 'kind_no')::bigint, false, (draft ->> 'priority')::smallint, due, job, 0, 0, (draft ->> 'attempts_max')::int
    );
    return queue_no;
  end if;
  limit_at := now + (draft ->> 'limit_us')::bigint * interval '1 us';
  insert into rowlock.waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
  ) values (
    job, draft ->> 'waits_for', queue_no, (draft ->> 'kind_no')::bigint, (draft ->> 'priority')::smallint, due, 0, 0,
    (draft ->> 'attempts_max')::int, case when draft ? 'waits_for' then least(limit_at, expires) end,
    case when draft ? 'group_no' or expires <= coalesce(limit_at, 'infinity') then 'cancelled' else 'retired' end,
    now, (draft ->> 'group_no')::bigint
  );
  return queue_no;
end
$body$;

-- Enqueues a job in the caller's transaction, with the given `options`. It returns the id, and whether the job is new.
-- If the key is held for the same request, the id is that of the job that holds the key.
create or replace function rowlock.enqueue_v1(
  kind text, payload json default '{}', options json default '{}', out id bigint, out is_new boolean
)
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  given constant json := rowlock.check_strings('options', coalesce(options, '{}'));
  key constant text := rowlock.key_option(given, 'key');
  hold_ms constant bigint := rowlock.number_option(given, 'hold_ms', null, 1, 316224000000);
  hold constant text := coalesce(given ->> 'hold', case when hold_ms is null then 'policy' else 'period' end);
  draft jsonb;
  waits boolean := false;
begin
  if given ->> 'at' is not null and given ->> 'delay_ms' is not null then
    raise exception 'delay_ms: set together with at; set only one of them' using errcode = 'RL012';
  end if;
  if json_typeof(given -> 'on_trigger') not in ('boolean', 'null')
    or (given ->> 'on_trigger' = 'true' and coalesce(given ->> 'at', given ->> 'delay_ms') is not null)
  then
    raise exception 'on_trigger: use true or false, without at and delay_ms' using errcode = 'RL012';
  end if;
  if json_typeof(given -> 'if_retired') not in ('object', 'null') then
    raise exception 'if_retired: use a job as an object, such as {"kind": "refund"}' using errcode = 'RL012';
  end if;
  if json_typeof(given -> 'group_stops') not in ('boolean', 'null')
    or (given ->> 'group_stops' = 'true' and given ->> 'group' is null)
  then
    raise exception 'group_stops: use true or false, together with group' using errcode = 'RL012';
  end if;
  if given ->> 'wait_limit_ms' is not null and given ->> 'waits_for' is null then
    raise exception 'wait_limit_ms: set without a wait; add waits_for' using errcode = 'RL012';
  end if;
  if key is null and (hold_ms is not null or given ->> 'hold' is not null) then
    raise exception 'hold: set without a key; add key' using errcode = 'RL012';
  end if;
  if hold not in ('policy', 'open', 'ever', 'period') or (hold = 'period') <> (hold_ms is not null) then
    raise exception 'hold: "%" is not valid; use policy, open or ever, or hold_ms alone', left(hold, 40) using errcode = 'RL012';
  end if;
  if given ->> 'trace' !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}( [ -~]+)?$' or octet_length(given ->> 'trace') > 568 then
    raise exception 'trace: not a valid traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' using errcode = 'RL012';
  end if;
  if given ->> 'group' is not null and given ->> 'waits_for' is not null then
    raise exception 'group: a job of a group cannot also wait for a name; let a job that waits enqueue it as its next job'
      using errcode = 'RL012';
  end if;
  draft := rowlock.encode(enqueue_v1.kind, enqueue_v1.payload, given, array[
    'at', 'attempts', 'delay_ms', 'expires', 'group', 'group_stops', 'hold', 'hold_ms', 'if_retired', 'key', 'on_trigger', 'priority',
    'queue', 'tags', 'trace', 'version', 'wait_limit_ms', 'waits_for']);
  is_new := true;
  if key is not null then
    select k.job, k.is_new into id, is_new
    from rowlock.take_key(
      key, rowlock.fingerprint(enqueue_v1.kind, coalesce(enqueue_v1.payload, '{}')), hold, hold_ms * interval '1 millisecond') k;
    if not is_new then
      return;
    end if;
  else
    id := nextval('rowlock.job_id');
  end if;
  if draft ? 'group_no' then
    waits := not rowlock.enter_group((draft ->> 'group_no')::bigint, id);
  elsif draft ? 'waits_for' then
    waits := not exists (select from rowlock.completion c where c.name = draft ->> 'waits_for');
  end if;
  perform rowlock.put_job(draft, null, id, waits);
end
$body$;

-- Enqueues many jobs, in the given order: an array of objects with kind, payload and the options of enqueue_v1.
create or replace function rowlock.enqueue_many_v1(jobs json, out ord int, out id bigint, out is_new boolean) returns setof record
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  job json;
  rest json;
begin
  if jobs is null or json_typeof(jobs) <> 'array' then
    raise exception 'jobs: use an array of objects' using errcode = 'RL012';
  end if;
  perform rowlock.check_strings('jobs', jobs);
  ord := 0;
  for job in select j from json_array_elements(jobs) as j loop
    ord := ord + 1;
    if json_typeof(job) <> 'object' then
      raise exception 'jobs[%]: use an object with a kind', ord - 1 using errcode = 'RL012';
    end if;
    select coalesce(json_object_agg(e.key, e.value), '{}') into rest
    from json_each(job) e where e.key not in ('kind', 'payload');
    select e.id, e.is_new into id, is_new from rowlock.enqueue_v1(job ->> 'kind', job -> 'payload', rest) e;
    return next;
  end loop;
end
$body$;

-- Sends a notification about new work in a queue. Call it after the commit: idle workers then look immediately, and not
-- only at their next poll.
create or replace function rowlock.wake_v1(queue text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select pg_notify(split_part('rowlock.', '.', 1) || '_wake', rowlock.number_of(queue)::text)
$body$;

revoke all on function rowlock.take_key, rowlock.encode, rowlock.put_job, rowlock.enqueue_v1, rowlock.enqueue_many_v1,
  rowlock.wake_v1 from public;
