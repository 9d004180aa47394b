-- Foundation: the places a job can be, the outcome log, workers, audit, the view and the partition functions.

-- Which migrations have run, and the oldest schema number a binary may speak and still work here.
create table rowlock.migration (
  version int primary key,
  name text not null,
  oldest int not null,
  applied_at timestamptz not null default clock_timestamp()
);

create sequence rowlock.job_id;

-- The body: written once at enqueue, and then by people only, so it hardly ever leaves a dead row.
create table rowlock.job (
  id bigint not null,
  uid uuid not null,
  kind text not null,
  version int not null,
  queue text not null,
  priority smallint not null,
  attempts_max int not null,
  payload json not null,
  tags jsonb,
  chain bigint,
  position int not null,
  expires_at timestamptz,
  if_retired json,
  trace text,
  reran_at timestamptz,
  was_done boolean,
  created_at timestamptz not null,
  primary key (id)
) partition by range (id);

create table rowlock.job_rest partition of rowlock.job default;

-- Next to free to keep, and finds what retention may remove.
create index job_created on rowlock.job using brin (created_at);

-- A chain's root has no chain of its own; its links carry the root's id.
create index job_chain on rowlock.job (chain, position) where chain is not null;

-- Due or scheduled. Narrow: it is written and removed once per attempt.
create table rowlock.ready (
  queue_no bigint not null,
  kind_no bigint not null,
  alone boolean not null,
  priority smallint not null,
  due_at timestamptz not null,
  id bigint not null,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

create unique index ready_order on rowlock.ready (queue_no, kind_no, alone, priority, due_at, id);
create unique index ready_id on rowlock.ready (id);

-- A worker has it. The token is (id, epoch, worker).
create table rowlock.lease (
  id bigint primary key,
  epoch bigint not null,
  worker bigint not null,
  attempt int not null,
  attempts_max int not null,
  queue_no bigint not null,
  kind_no bigint not null,
  alone boolean not null,
  priority smallint not null,
  claimed_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- One row per ended attempt, whatever the end: done, retried, deferred, released, retired, cancelled, lost. Append-only. No
-- check says so, since the server would read its text anew for every statement, which is half of the time of a single insert.
create table rowlock.outcome (
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  attempt int not null,
  outcome text not null,
  started_at timestamptz not null,
  ended_at timestamptz not null,
  error text,
  result json
) partition by range (ended_at);

create table rowlock.outcome_rest partition of rowlock.outcome default;

create index outcome_id on rowlock.outcome (id, epoch);

-- Retired, open for a decision; the history is copied in, so that it outlives the outcome log.
create table rowlock.case_file (
  id bigint primary key,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null,
  queue_no bigint not null,
  kind_no bigint not null,
  priority smallint not null,
  reason text not null,
  retired_at timestamptz not null,
  history jsonb not null
);

-- One row per worker process, beaten as one whatever it holds.
create table rowlock.worker (
  id bigint primary key,
  name text not null,
  lease_ms bigint not null,
  beat timestamptz not null,
  dead boolean not null default false,
  started_at timestamptz not null
) with (fillfactor = 50);

-- What people did to jobs.
create table rowlock.audit (
  no bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  verb text not null,
  id bigint not null,
  detail text
);

create index audit_id on rowlock.audit (id);

-- Every job with its state, owner, attempts, last error and next due time.
create view rowlock.jobs as
select
  j.id,
  j.uid,
  j.kind,
  j.version,
  j.queue,
  j.priority,
  case
    when l.id is not null then 'leased'
    when r.id is not null then 'ready'
    when c.id is not null then 'case'
    else 'finished'
  end as state,
  coalesce(l.attempt, r.attempt, c.attempt, o.attempt, 0) as attempt,
  coalesce(l.attempts_max, r.attempts_max, c.attempts_max, j.attempts_max) as attempts_max,
  coalesce(l.epoch, r.epoch, c.epoch, o.epoch, 0) as epoch,
  r.due_at,
  l.worker,
  l.claimed_at,
  o.outcome as last_outcome,
  o.ended_at as last_ended_at,
  coalesce(o.error, c.reason) as last_error,
  o.result,
  j.payload,
  j.tags,
  j.chain,
  j.position,
  j.expires_at,
  j.created_at
from rowlock.job j
left join rowlock.lease l on l.id = j.id
left join rowlock.ready r on r.id = j.id
left join rowlock.case_file c on c.id = j.id
left join lateral (
  select x.attempt, x.epoch, x.outcome, x.ended_at, x.error, x.result
  from rowlock.outcome x where x.id = j.id order by x.epoch desc limit 1
) o on true;

-- Makes the partitions that the coming days and ids need. Runs with the owner's rights, so that a worker's role needs none.
-- A partition is made apart and then attached, which shuts out nobody but readers of the default one; and whoever wants a
-- table queues behind a lock that waits, so it waits for a moment only and leaves the rest to the next round.
create function rowlock.make_partitions(days_ahead int, ids_ahead bigint) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  width constant bigint := 10000000;
  patience constant text := current_setting('lock_timeout');
  made int := 0;
  day date;
  start bigint;
  part text;
begin
  perform pg_advisory_xact_lock(hashtextextended('rowlock partitions', 0));
  perform set_config('lock_timeout', '200ms', true);
  begin
    for i in 0..days_ahead loop
      day := (clock_timestamp() at time zone 'utc')::date + i;
      part := 'outcome_' || to_char(day, 'YYYYMMDD');
      if to_regclass('rowlock.' || part) is null
        -- Rows that came first are in the default partition and keep their range from being made.
        and not exists (
          select from rowlock.outcome_rest r
          where r.ended_at >= day::timestamp at time zone 'utc' and r.ended_at < (day + 1)::timestamp at time zone 'utc')
      then
        execute format('create table rowlock.%I (like rowlock.outcome including defaults including constraints)', part);
        execute format(
          'alter table rowlock.outcome attach partition rowlock.%I for values from (%L) to (%L)',
          part, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
        made := made + 1;
      end if;
    end loop;
    select last_value / width * width into start from rowlock.job_id;
    loop
      part := 'job_' || start / width;
      if to_regclass('rowlock.' || part) is null
        and not exists (select from rowlock.job_rest r where r.id >= start and r.id < start + width)
      then
        execute format('create table rowlock.%I (like rowlock.job including defaults including constraints)', part);
        execute format('alter table rowlock.job attach partition rowlock.%I for values from (%s) to (%s)', part, start, start + width);
        made := made + 1;
      end if;
      start := start + width;
      exit when start > (select last_value from rowlock.job_id) + ids_ahead;
    end loop;
  exception
    -- Somebody holds a table, or a row reached the default partition after the look: nothing was made this time.
    when lock_not_available or check_violation then made := 0;
  end;
  perform set_config('lock_timeout', patience, true);
  return made;
end
$body$;

-- Drops the outcome partitions whose every row ended before the given time, and says how many; empties the default one of such rows.
-- Dropping shuts out every reader and writer of the log, so it too waits for a moment only.
create function rowlock.drop_history(before timestamptz) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  patience constant text := current_setting('lock_timeout');
  dropped int := 0;
  part text;
begin
  perform set_config('lock_timeout', '200ms', true);
  begin
    for part in
      select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'rowlock.outcome'::regclass
        and c.relname ~ '^outcome_[0-9]{8}$'
        and (substr(c.relname, 9)::date + 1)::timestamp at time zone 'utc' <= before
    loop
      execute format('drop table rowlock.%I', part);
      dropped := dropped + 1;
    end loop;
    delete from rowlock.outcome_rest where ended_at < before;
  exception
    when lock_not_available then dropped := 0;
  end;
  perform set_config('lock_timeout', patience, true);
  return dropped;
end
$body$;

-- Settles an attempt that is done in its handler's own transaction, and enqueues the link that follows, if any. It raises
-- RL001 where the token no longer holds, and RL002 where the transaction is not the one that was marked: whatever stands
-- behind the call in the same string, a commit too, is then not run. A function, so that its plans are made apart from the
-- settings of the user's session: there a small table is read whole, and with it every dead lease.
create function rowlock.settle_done(
  token_id bigint, token_epoch bigint, token_worker bigint, marker text, answer text, at timestamptz,
  next_uid uuid, next_kind text, next_kind_no bigint, next_version int, next_queue text, next_queue_no bigint,
  next_priority smallint, next_attempts int, next_payload text, next_tags text, next_chain bigint, next_position int,
  next_due timestamptz, next_delay bigint, next_expires timestamptz, next_compensation text, next_trace text
) returns void
language plpgsql security invoker
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  ended timestamptz := coalesce(at, clock_timestamp());
  tried int;
  began timestamptz;
  next_id bigint;
begin
  if coalesce(current_setting('rowlock_tx.marker', true), '') <> marker then
    raise exception 'this transaction is not the one job % was given', token_id using errcode = 'RL002';
  end if;
  delete from rowlock.lease l
  where l.id = token_id and l.epoch = token_epoch and l.worker = token_worker
  returning l.attempt, l.claimed_at into tried, began;
  if not found then
    raise exception 'the lease of job % is lost', token_id using errcode = 'RL001';
  end if;
  insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  values (token_id, token_epoch, token_worker, tried, 'done', began, ended, null, answer::json);
  -- One that was done before and was re-run may have its links.
  if next_uid is not null
    and not (token_epoch > 1 and exists (
      select from rowlock.job j
      join rowlock.job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1
      where j.id = token_id and j.was_done and x.uid is distinct from (j.if_retired ->> 'uid')::uuid
    ))
  then
    next_id := nextval('rowlock.job_id');
    insert into rowlock.job (
      id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired,
      trace, created_at
    ) values (
      next_id, next_uid, next_kind, next_version, next_queue, next_priority, next_attempts, next_payload::json,
      next_tags::jsonb, next_chain, next_position, next_expires, next_compensation::json, next_trace, ended
    );
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      next_queue_no, next_kind_no, false, next_priority,
      greatest(coalesce(next_due, ended + next_delay * interval '1 microsecond'), ended), next_id, 0, 0, next_attempts
    );
  end if;
end
$body$;


revoke all on function rowlock.make_partitions(int, bigint) from public;
revoke all on function rowlock.drop_history(timestamptz) from public;
revoke all on function rowlock.settle_done(
  bigint, bigint, bigint, text, text, timestamptz, uuid, text, bigint, int, text, bigint, smallint, int, text, text, bigint,
  int, timestamptz, bigint, timestamptz, text, text) from public;
