-- The protocol for every language: how a handler ends its attempt, under its token.

-- The token of a lease, as text and back.
create or replace function rowlock.lease_of(token text, out id bigint, out epoch bigint, out worker bigint)
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  if coalesce(token !~ '^[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,19}$', true) then
    raise exception 'token: "%" is not a token from a claim', left(token, 80) using errcode = 'RL012';
  end if;
  id := split_part(token, '-', 1)::bigint;
  epoch := split_part(token, '-', 2)::bigint;
  worker := split_part(token, '-', 3)::bigint;
exception
  when numeric_value_out_of_range then
    raise exception 'token: "%" is not a token from a claim', left(token, 80) using errcode = 'RL012';
end
$body$;

-- Settles a lease as anything but done, only where the token still holds, as settle/attempts.sql does: RL001 where it does not. A case
-- gets its history and its compensation; the turn of its group is passed on where the group goes on.
create or replace function rowlock.settle_lease(token text, ended text, place text, delay interval, why text) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  said constant text := left(why, 16000);
  lease record;
  gone record;
  turn bigint;
begin
  select t.* into lease from rowlock.lease_of(token) t;
  delete from rowlock.lease l where l.id = lease.id and l.epoch = lease.epoch and l.worker = lease.worker
  returning l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.alone, l.priority, l.claimed_at into gone;
  if not found then
    raise exception 'the lease of job % is lost', lease.id using errcode = 'RL001';
  end if;
  if place = 'ready' then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      gone.queue_no, gone.kind_no, gone.alone and ended = 'released', gone.priority, now + delay, lease.id, lease.epoch,
      gone.attempt - case when ended in ('deferred', 'released') then 1 else 0 end, gone.attempts_max
    );
  elsif place = 'case' then
    insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
    values (
      lease.id, lease.epoch, gone.attempt, gone.attempts_max, gone.queue_no, gone.kind_no, gone.priority, coalesce(said, ended), now,
      coalesce((
        select jsonb_agg(jsonb_build_object(
          'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
          'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
        from rowlock.outcome o where o.id = lease.id
      ), '[]') || jsonb_build_object(
        'epoch', lease.epoch, 'attempt', gone.attempt, 'outcome', ended, 'worker', lease.worker,
        'started_at', gone.claimed_at, 'ended_at', now, 'error', said)
    );
  end if;
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  values (lease.id, lease.epoch, lease.worker, gone.attempt, ended, gone.claimed_at, now, said);
  if place = 'case' then
    perform rowlock.compensate(array[lease.id], null);
  end if;
  if place <> 'ready' then
    select j.group_no into turn from rowlock.job j
    where j.id = lease.id and not (place = 'case' and coalesce(j.group_stops, false));
    if turn is not null then
      perform rowlock.pass_turns(array[turn], array[lease.id], null);
    end if;
  end if;
end
$body$;

-- Records in the caller's own transaction that the attempt is done, with what it returns and the link that follows, if any, as
-- {"kind", "payload", …}: both happen if and only if the transaction commits. RL001 where the token holds no more.
create or replace function rowlock.done_v1(token text, result json default null, next json default null) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  lease record;
  body record;
  named text;
  queue text;
  version int;
begin
  select t.* into lease from rowlock.lease_of(token) t;
  select j.chain, j.position, j.group_no, j.trace into body from rowlock.job j where j.id = lease.id;
  if next is not null then
    perform rowlock.check_strings('next', next);
    perform rowlock.check_options(
      next, array['kind', 'payload', 'at', 'attempts', 'delay_ms', 'expires', 'priority', 'queue', 'tags', 'version']);
    named := rowlock.name_option(next, 'kind', '');
    queue := rowlock.name_option(next, 'queue', 'default');
    version := rowlock.number_option(next, 'version', 1, 1, 1000000);
    perform rowlock.check_json('payload', coalesce(next -> 'payload', '{}'));
  end if;
  if result is not null then
    perform rowlock.check_json('result', result);
  end if;
  perform rowlock.settle_done(
    lease.id, lease.epoch, lease.worker, coalesce(current_setting('rowlock_tx.marker', true), ''), result::text, null,
    case when next is not null then gen_random_uuid() end, named, rowlock.number_of(named || '@' || version), version, queue,
    rowlock.number_of(queue), rowlock.number_option(next, 'priority', 3, 1, 5)::smallint,
    rowlock.number_option(next, 'attempts', 10, 1, 10000)::int, coalesce(next -> 'payload', '{}')::text,
    rowlock.tags_option(next)::text, coalesce(body.chain, lease.id), body.position + 1, rowlock.time_option(next, 'at'),
    1000 * rowlock.number_option(next, 'delay_ms', 0, 0, 316224000000), rowlock.time_option(next, 'expires'), null, body.trace);
  if body.group_no is not null then
    perform rowlock.pass_turns(array[body.group_no], array[lease.id], null);
  end if;
end
$body$;

-- Records that the attempt failed: it is tried again after `retry_ms`, or after a time that doubles with each attempt, or becomes
-- a case with the last of its attempts. It says where the job stands now; RL001 where the token holds no more.
create or replace function rowlock.fail_v1(token text, error text, retry_ms bigint default null) returns text
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  lease record;
  tried record;
  wait_s float8;
begin
  if retry_ms not between 0 and 316224000000 then
    raise exception 'retry_ms: % is not a whole number from 0 to 316224000000', retry_ms using errcode = 'RL012';
  end if;
  select t.* into lease from rowlock.lease_of(token) t;
  select l.attempt, l.attempts_max into tried from rowlock.lease l
  where l.id = lease.id and l.epoch = lease.epoch and l.worker = lease.worker for update;
  if not found then
    raise exception 'the lease of job % is lost', lease.id using errcode = 'RL001';
  end if;
  if tried.attempt >= tried.attempts_max then
    perform rowlock.settle_lease(token, 'retired', 'case', null, error);
    return 'case';
  end if;
  -- From one second to an hour, spread by a quarter each way.
  wait_s := least(least(power(2, least(greatest(tried.attempt, 1), 40) - 1), 3600) * (0.75 + 0.5 * random()), 3600);
  perform rowlock.settle_lease(
    token, 'retried', 'ready', coalesce(retry_ms * interval '1 millisecond', wait_s * interval '1 second'), error);
  return 'ready';
end
$body$;

-- Puts the attempt off: the job is due again later, and the attempt does not count.
create or replace function rowlock.defer_v1(token text, delay_ms bigint, reason text default null) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  if delay_ms is null or delay_ms not between 0 and 316224000000 then
    raise exception 'delay_ms: % is not a whole number from 0 to 316224000000', delay_ms using errcode = 'RL012';
  end if;
  perform rowlock.settle_lease(token, 'deferred', 'ready', delay_ms * interval '1 millisecond', reason);
end
$body$;

-- Hands a job back that was not begun, for somebody else; the attempt does not count.
create or replace function rowlock.release_v1(token text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'released', 'ready', interval '0', null)
$body$;

-- Gives the job up: it becomes a case, whatever attempts it has left.
create or replace function rowlock.retire_v1(token text, error text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'retired', 'case', null, error)
$body$;

-- Ends the job without its effect, on purpose.
create or replace function rowlock.cancel_v1(token text, reason text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'cancelled', 'finished', null, reason)
$body$;

revoke all on function rowlock.lease_of from public;
revoke all on function rowlock.settle_lease from public;
revoke all on function rowlock.done_v1 from public;
revoke all on function rowlock.fail_v1 from public;
revoke all on function rowlock.defer_v1 from public;
revoke all on function rowlock.release_v1 from public;
revoke all on function rowlock.retire_v1 from public;
revoke all on function rowlock.cancel_v1 from public;
