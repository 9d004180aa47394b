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

-- Ends the lease of one job with any outcome but done, and passes the turn of its group on. RL001 if the token no
-- longer holds.
create or replace function rowlock.end_lease(
  job bigint, epoch bigint, worker bigint, ended text, place text, delay_us bigint, why text
) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turn bigint;
begin
  if place <> 'ready' then
    select j.group_no into turn from rowlock.job j
    where j.id = job and not (place = 'case' and coalesce(j.group_stops, false));
  end if;
  perform from rowlock.end_leases(
    array[job], array[epoch], array[worker], null, array[turn], null, null,
    array[ended], array[place], array[delay_us], array[left(why, 16000)]) e
  where e.held is not null;
  if not found then
    raise exception 'the lease of job % is lost', job using errcode = 'RL001';
  end if;
end
$body$;

-- The same, with the token as text.
create or replace function rowlock.settle_lease(token text, ended text, place text, delay_us bigint, why text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.end_lease(t.id, t.epoch, t.worker, ended, place, delay_us, why) from rowlock.lease_of(token) t
$body$;

-- Records in the caller's own transaction that the attempt is done, with its result and the next link, if any, as
-- {"kind", "payload", …}. Both happen if and only if the transaction commits. RL001 if the token no longer holds.
create or replace function rowlock.done_v1(token text, result json default null, next json default null) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  lease record;
  body record;
  following jsonb;
begin
  select t.* into lease from rowlock.lease_of(token) t;
  select j.chain, j.position, j.group_no, j.trace into body from rowlock.job j where j.id = lease.id;
  if next is not null then
    perform rowlock.check_strings('next', next);
    following := rowlock.encode(
      next ->> 'kind', next -> 'payload', next,
      array['kind', 'payload', 'at', 'attempts', 'delay_ms', 'expires', 'priority', 'queue', 'tags', 'version'],
      coalesce(body.chain, lease.id), body.position + 1, body.trace);
  end if;
  if result is not null then
    perform rowlock.check_json('result', result);
  end if;
  perform rowlock.settle_done(
    lease.id, lease.epoch, lease.worker, null, result::text, body.group_no, following, null);
end
$body$;

-- Records that the attempt failed. The job is tried again after `retry_ms`, or after a time that doubles with each
-- attempt. After its last attempt it becomes a case. It says where the job is now. RL001 if the token no longer holds.
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
    perform rowlock.settle_lease(token, 'retired', 'case', 0, error);
    return 'case';
  end if;
  -- From one second to one hour, with a jitter of 25 % in both directions.
  wait_s := least(least(power(2, least(greatest(tried.attempt, 1), 40) - 1), 3600) * (0.75 + 0.5 * random()), 3600);
  perform rowlock.settle_lease(token, 'retried', 'ready', coalesce(retry_ms * 1000, (wait_s * 1000000)::bigint), error);
  return 'ready';
end
$body$;

-- Defers the attempt: the job is due again later, and the attempt does not count.
create or replace function rowlock.defer_v1(token text, delay_ms bigint, reason text default null) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  if delay_ms is null or delay_ms not between 0 and 316224000000 then
    raise exception 'delay_ms: % is not a whole number from 0 to 316224000000', delay_ms using errcode = 'RL012';
  end if;
  perform rowlock.settle_lease(token, 'deferred', 'ready', delay_ms * 1000, reason);
end
$body$;

-- Releases a job whose work was not begun, for another worker. The attempt does not count.
create or replace function rowlock.release_v1(token text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'released', 'ready', 0, null)
$body$;

-- Retires the job: it becomes a case, whatever attempts it has left.
create or replace function rowlock.retire_v1(token text, error text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'retired', 'case', 0, error)
$body$;

-- Cancels the job: it ends on purpose without its effect.
create or replace function rowlock.cancel_v1(token text, reason text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'cancelled', 'finished', 0, reason)
$body$;

revoke all on function rowlock.lease_of, rowlock.end_lease, rowlock.settle_lease, rowlock.done_v1, rowlock.fail_v1,
  rowlock.defer_v1, rowlock.release_v1, rowlock.retire_v1, rowlock.cancel_v1 from public;
