-- The whole schema as it stands today; proven equal to the sum of the migrations by a test.
-- A job is in exactly one place (ready, waiting, lease, case_file), and moving it is the transition.

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
  waits_for text,
  in_group text,
  group_no bigint,
  group_stops boolean,
  primary key (id)
) partition by range (id);

create table rowlock.job_rest partition of rowlock.job default;

-- Next to free to keep, and finds what retention may remove.
create index job_created on rowlock.job using brin (created_at);

-- A chain's root has no chain of its own; its links carry the root's id.
create index job_chain on rowlock.job (chain, position) where chain is not null;

-- A completion is kept while a body names it.
create index job_waits_for on rowlock.job (waits_for) where waits_for is not null;

-- The jobs of one group, for people.
create index job_in_group on rowlock.job (in_group, id) where in_group is not null;

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
  history jsonb not null,
  error_no bigint,
  owner text,
  note text
);
create index case_file_error on rowlock.case_file (error_no, id);

-- Each error that cases have or had: their reasons without what differs from job to job.
create table rowlock.case_error (
  no bigint primary key,
  error text not null,
  first_seen timestamptz not null,
  last_seen timestamptz not null,
  seen bigint not null
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
  detail text,
  jobs bigint not null default 1,
  before text,
  after text
);

create index audit_id on rowlock.audit (id);

-- The caller's name for a logical operation: one job per key while the key is held, decided by the primary key.
-- A key that is held by policy or for a period outlasts its time for as long as its job is in any place.
create table rowlock.job_key (
  key text primary key,
  id bigint not null,
  fingerprint bytea not null,
  hold text not null check (hold in ('open', 'policy', 'period', 'ever')),
  expires_at timestamptz,
  made_at timestamptz not null
);

create index job_key_id on rowlock.job_key (id);

-- What the sweep walks.
create index job_key_made on rowlock.job_key (hold, made_at);

-- What was done once, by key, with the answer that every repeat gets. The answer is null when the first gave none.
create table rowlock.ledger (
  key text primary key,
  fingerprint bytea,
  answer json,
  hold text not null check (hold in ('policy', 'period', 'ever')),
  expires_at timestamptz,
  made_at timestamptz not null
);

-- What the sweep walks.
create index ledger_made on rowlock.ledger (hold, made_at);

-- Outside calls: the intent is stored before the call, the reply after it. An open intent whose lease is gone is in doubt;
-- `doubt` says that an earlier call may have happened, which a later call's failure does not answer.
create table rowlock.effect (
  no bigint generated always as identity primary key,
  id bigint not null,
  name text not null,
  key text not null,
  state text not null check (state in ('open', 'uncertain', 'replied', 'undone')),
  policy text not null check (policy in ('retry', 'park', 'ask')),
  fingerprint bytea,
  tries int not null,
  doubt boolean not null default false,
  epoch bigint not null,
  worker bigint not null,
  begun_at timestamptz not null,
  deadline_at timestamptz not null,
  ended_at timestamptz,
  reply json,
  error text,
  resolved_by text,
  unique (id, name)
);

create index effect_doubt on rowlock.effect (begun_at) where state in ('open', 'uncertain');

-- Every effect with its job, and its doubt spelled out: an open intent is in flight while its attempt holds the lease.
create view rowlock.effects as
select
  e.no,
  e.id,
  j.kind,
  j.queue,
  e.name,
  e.key,
  case
    when e.state = 'open' and l.id is null then 'uncertain'
    when e.state = 'open' then 'in flight'
    else e.state
  end as state,
  e.policy,
  e.tries,
  e.epoch,
  e.worker,
  e.begun_at,
  e.deadline_at,
  e.ended_at,
  e.reply,
  e.error,
  e.resolved_by
from rowlock.effect e
left join rowlock.job j on j.id = e.id
left join rowlock.lease l on l.id = e.id and l.epoch = e.epoch and l.worker = e.worker;

-- What people set at run time, such as the percentage of a rollout.
create table rowlock.setting (
  name text primary key,
  value text not null,
  changed_at timestamptz not null,
  changed_by text not null
);

-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock.guard_version (
  key text primary key,
  version bigint not null,
  changed_at timestamptz not null
);

-- Who may be in the body of work under a key. A row holds only while the lease of its token does.
create table rowlock.body_lock (
  key text not null,
  slot int not null,
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  taken_at timestamptz not null,
  primary key (key, slot)
);

-- Waits for somebody outside to complete the name, or for its turn behind the head of its group; then it moves to ready. Past
-- its limit it ends as said.
create table rowlock.waiting (
  id bigint primary key,
  name text,
  queue_no bigint not null,
  kind_no bigint not null,
  priority smallint not null,
  due_at timestamptz not null,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null,
  limit_at timestamptz,
  limit_ends text not null check (limit_ends in ('retired', 'cancelled')),
  since timestamptz not null,
  group_no bigint,
  alone boolean not null default false,
  constraint waiting_one check ((name is null) <> (group_no is null))
);

create index waiting_name on rowlock.waiting (name);
create index waiting_limit on rowlock.waiting (limit_at) where limit_at is not null;

-- The next of a group is the smallest.
create index waiting_group on rowlock.waiting (group_no, id) where group_no is not null;

-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Vacant until the sweep has filled or removed it.
create table rowlock.job_group (
  no bigint primary key,
  head bigint,
  paused boolean not null default false,
  vacant boolean not null generated always as (head is null) stored
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- What the sweep looks for.
-- By a column of its own, so that a turn that is passed on changes nothing in any index.
create index job_group_vacant on rowlock.job_group (no) where vacant and not paused;
create index job_group_paused on rowlock.job_group (no) where paused;

-- What was completed, with the answer for the jobs that wait for it, now or later.
create table rowlock.completion (
  name text primary key,
  answer json,
  completed_at timestamptz not null
);

-- A dependency that kinds are bound to. While it is not closed, nobody claims those kinds but for the probes.
create table rowlock.breaker (
  name text primary key,
  state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
  forced boolean not null default false,
  failures int not null default 0,
  trips int not null default 0,
  open_until timestamptz,
  threshold int not null,
  cooldown_us bigint not null,
  cooldown_max_us bigint not null,
  probes int not null,
  version bigint not null default 1,
  changed_at timestamptz not null,
  changed_by text not null,
  reason text
);

-- Every change of a breaker's state.
create table rowlock.breaker_log (
  name text not null,
  version bigint not null,
  from_state text not null,
  to_state text not null,
  forced boolean not null,
  changed_at timestamptz not null,
  changed_by text not null,
  reason text,
  primary key (name, version)
);

-- What the sweep walks.
create index breaker_log_changed on rowlock.breaker_log (changed_at);

-- Who tries a half-open breaker. A row holds only while the lease of its token does.
create table rowlock.probe (
  name text not null,
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  primary key (name, id)
);

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
    when w.id is not null then 'waiting'
    else 'finished'
  end as state,
  coalesce(l.attempt, r.attempt, c.attempt, w.attempt, o.attempt, 0) as attempt,
  coalesce(l.attempts_max, r.attempts_max, c.attempts_max, w.attempts_max, j.attempts_max) as attempts_max,
  coalesce(l.epoch, r.epoch, c.epoch, w.epoch, o.epoch, 0) as epoch,
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
  j.created_at,
  j.waits_for,
  k.key,
  j.in_group
from rowlock.job j
left join rowlock.lease l on l.id = j.id
left join rowlock.ready r on r.id = j.id
left join rowlock.case_file c on c.id = j.id
left join rowlock.waiting w on w.id = j.id
left join rowlock.job_key k on k.id = j.id
left join lateral (
  select x.attempt, x.epoch, x.outcome, x.ended_at, x.error, x.result
  from rowlock.outcome x where x.id = j.id order by x.epoch desc limit 1
) o on true;

-- How much waits per queue and kind, and since when its oldest is due. What is ready is counted to 100,000 for each queue, kind and
-- priority, what waits, is leased or a case to 100,000 in all, and `more` says that there are more: it answers at once however
-- long a backlog is.
create view rowlock.backlog as
with recursive clock as materialized (
  select clock_timestamp() as now
), lane as (
  (select r.queue_no, r.kind_no, r.alone, r.priority from rowlock.ready r order by 1, 2, 3, 4 limit 1)
  union all
  select n.queue_no, n.kind_no, n.alone, n.priority
  from lane l
  cross join lateral (
    select r.queue_no, r.kind_no, r.alone, r.priority
    from rowlock.ready r
    where (r.queue_no, r.kind_no, r.alone, r.priority) > (l.queue_no, l.kind_no, l.alone, l.priority)
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  ) n
), place as (
  select
    l.queue_no, l.kind_no, f.id as sample, d.jobs as due, s.jobs as scheduled, 0::bigint as waiting, 0::bigint as leased,
    0::bigint as cases, case when f.due_at <= c.now then f.due_at end as oldest, d.jobs >= 100000 or s.jobs >= 100000 as more
  from lane l
  cross join clock c
  cross join lateral (
    select r.id, r.due_at
    from rowlock.ready r
    where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
    order by r.due_at, r.id limit 1
  ) f
  cross join lateral (
    select count(*) as jobs
    from (
      select from rowlock.ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
        and r.due_at <= c.now
      limit 100000
    ) x
  ) d
  cross join lateral (
    select count(*) as jobs
    from (
      select from rowlock.ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
        and r.due_at > c.now
      limit 100000
    ) x
  ) s
  union all
  select w.queue_no, w.kind_no, min(w.id), 0, 0, count(*), 0, 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.waiting x limit 100000) w group by w.queue_no, w.kind_no
  union all
  select l.queue_no, l.kind_no, min(l.id), 0, 0, 0, count(*), 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.lease x limit 100000) l group by l.queue_no, l.kind_no
  union all
  select f.queue_no, f.kind_no, min(f.id), 0, 0, 0, 0, count(*), null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.case_file x limit 100000) f group by f.queue_no, f.kind_no
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(p.due)::bigint as due,
  sum(p.scheduled)::bigint as scheduled,
  sum(p.waiting)::bigint as waiting,
  sum(p.leased)::bigint as leased,
  sum(p.cases)::bigint as cases,
  -- Where one of the other places is not counted to its end, nobody knows of which queue the rest is.
  bool_or(p.more) or (select coalesce(bool_or(x.more and x.due + x.scheduled = 0), false) from place x) as more,
  min(p.oldest) as oldest_due_at
from place p left join rowlock.job j on j.id = p.sample
group by 1, 2;

-- Who has which job, for how long, and whether the lease is over: a worker that is silent for longer than its lease has lost it.
create view rowlock.held as
select
  l.id,
  j.kind,
  j.queue,
  l.attempt,
  l.attempts_max,
  l.epoch,
  l.worker,
  w.name as worker_name,
  l.claimed_at,
  clock_timestamp() - l.claimed_at as held_for,
  w.beat as last_beat,
  coalesce(w.dead or w.beat < clock_timestamp() - w.lease_ms * interval '1 millisecond', true) as expired
from rowlock.lease l
left join rowlock.worker w on w.id = l.worker
left join rowlock.job j on j.id = l.id;

-- Every job that is not simply waiting to be claimed for the first time: why, who has it, since when, how often it was tried, how
-- that ended, and when it may be tried again.
create view rowlock.stuck as
select
  s.id, j.kind, j.queue, s.state, s.why, s.holder, coalesce(s.since, o.ended_at) as since, s.attempt, s.attempts_max,
  o.error as last_error, s.eligible_at
from (
  select
    h.id, 'leased' as state, case when h.expired then 'its worker is silent' else 'it runs' end as why,
    coalesce(h.worker_name, h.worker::text) as holder, h.claimed_at as since, h.attempt, h.attempts_max,
    null::timestamptz as eligible_at
  from rowlock.held h
  union all
  select r.id, 'ready', 'it was tried', null, null, r.attempt, r.attempts_max, r.due_at
  from rowlock.ready r where r.epoch > 0
  union all
  select
    w.id, 'waiting',
    case
      when w.name is not null then 'it waits for ' || w.name
      when g.paused then 'its group is paused'
      else 'it waits behind job ' || coalesce(g.head::text, '?') || coalesce(', a case: ' || f.reason, '')
    end,
    null, w.since, w.attempt, w.attempts_max, null
  from rowlock.waiting w
  left join rowlock.job_group g on g.no = w.group_no
  left join rowlock.case_file f on f.id = g.head
  union all
  select c.id, 'case', c.reason, c.owner, c.retired_at, c.attempt, c.attempts_max, null
  from rowlock.case_file c
) s
left join rowlock.job j on j.id = s.id
left join lateral (
  select x.error, x.ended_at from rowlock.outcome x where x.id = s.id order by x.epoch desc limit 1
) o on true;

-- Outside calls of which nobody knows whether they happened.
create view rowlock.doubts as
select
  e.no, e.id, j.kind, j.queue, e.name, e.key, e.policy, e.tries, e.begun_at, clock_timestamp() - e.begun_at as in_doubt_for,
  e.error
from rowlock.effect e
left join rowlock.job j on j.id = e.id
where e.state in ('open', 'uncertain') and (e.state = 'uncertain' or not exists (
  select from rowlock.lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker
));

-- Open cases by what they have in common.
create view rowlock.case_errors as
select
  e.no, e.error, count(*) as cases, e.first_seen, e.last_seen, e.seen, min(c.id) as oldest_case, max(c.id) as newest_case
from rowlock.case_file c
join rowlock.case_error e on e.no = c.error_no
group by e.no, e.error, e.first_seen, e.last_seen, e.seen;

-- Rows that nobody sees any more and that are still in the way of those that do, by table.
create view rowlock.dead_rows as
select
  s.relname as table_name, s.n_live_tup as live, s.n_dead_tup as dead, greatest(s.last_vacuum, s.last_autovacuum) as last_vacuum,
  pg_total_relation_size(s.relid) as bytes
from pg_stat_all_tables s
join pg_class c on c.oid = s.relid
where c.relnamespace = (select x.relnamespace from pg_class x where x.oid = 'rowlock.job'::regclass);

-- The transaction that has been open for longest, which keeps dead rows from being removed.
create view rowlock.oldest_transaction as
select
  a.pid, a.datname as database, a.usename as role, a.application_name as application, a.state, a.xact_start as since,
  clock_timestamp() - a.xact_start as open_for, a.query as last_statement
from pg_stat_activity a
where a.xact_start is not null and coalesce(a.backend_xid, a.backend_xmin) is not null
  and a.datname = current_database() and a.pid <> pg_backend_pid()
order by a.xact_start limit 1;

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

-- Passes the turn of groups on: where a group's head is still the one given, the job behind it with the smallest id is moved
-- to ready and is its head now; without one the group is vacant. In the commit that ends the head, or later from the sweep.
-- Two statements on purpose: the second one's snapshot must be newer than the locks the first one waited for. A function,
-- so that its plans are made apart from the settings of the user's session. It says which queues got work.
create function rowlock.pass_turns(groups bigint[], heads bigint[], at timestamptz) returns bigint[]
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turns bigint[];
  queues bigint[];
begin
  select array_agg(held.no) into turns
  from (
    select g.no
    from unnest(groups, heads) as u (no, head) join rowlock.job_group g on g.no = u.no
    where g.head is not distinct from u.head
    order by g.no
    for no key update of g
  ) held;
  with next as materialized (
    select g.no, w.id
    from unnest(turns) as t (no)
    join rowlock.job_group g on g.no = t.no
    -- From the group's first on and no further, whatever the statistics say of a group that is large.
    left join lateral (
      select x.id, x.group_no from rowlock.waiting x
      where x.group_no is not null and (x.group_no, x.id) > (g.no, 0)
      order by x.group_no, x.id limit 1
    ) w on w.group_no = g.no and not g.paused
  ), gone as (
    delete from rowlock.waiting w using next n where w.id = any (array[n.id])
    returning
      w.id, w.queue_no, w.kind_no, w.alone, w.priority, greatest(w.due_at, coalesce(at, clock_timestamp())) as due_at,
      w.epoch, w.attempt, w.attempts_max
  ), place as (
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max from gone
  ), passed as (
    update rowlock.job_group g set head = d.id
    from next n left join gone d on d.id = n.id
    where g.no = any (array[n.no]) and g.head is distinct from d.id
  )
  select array_agg(distinct queue_no) into queues from gone;
  return queues;
end
$body$;
-- Why a verb cannot be applied to a job, for people: RL010 where there is no such job, RL011 where it stands elsewhere. It says
-- nothing where the job is moving between two places just now: look again.
create function rowlock.refuse(job bigint, verb text) returns void
language plpgsql security invoker
as $body$
declare
  place text;
begin
  select j.state into place from rowlock.jobs j where j.id = job;
  if not found then
    raise exception 'no job %', job using errcode = 'RL010';
  end if;
  if (place = 'leased' and verb = 'delayed') or place = 'case'
    or (place = 'finished' and exists (
      select from rowlock.outcome o where o.id = job and o.outcome in ('done', 'cancelled')))
  then
    raise exception 'job % is %, and cannot be %', job, place, verb using errcode = 'RL011';
  end if;
end
$body$;

-- Makes a job due at another time, wherever it waits for it: in ready, or behind the head of its group. Without a time it is
-- due now. It says when it was due before. With the owner's rights: whoever may call it can do this, with its note in the
-- audit, and nothing else to those tables.
create function rowlock.delay(job bigint, until timestamptz, actor text) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  -- No further ahead than every driver can read.
  due timestamptz := least(greatest(until, clock_timestamp()), '9998-12-31T00:00:00Z');
  before timestamptz;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    place := 'ready';
    select r.due_at into before from rowlock.ready r where r.id = job for update;
    if found then
      update rowlock.ready r set due_at = due where r.id = job;
    else
      place := 'waiting';
      select w.due_at into before from rowlock.waiting w where w.id = job for update;
      if found then
        update rowlock.waiting w set due_at = due where w.id = job;
      end if;
    end if;
    if found then
      insert into rowlock.audit (actor, verb, id, detail, before, after)
      values (actor, case when until is null then 'run now' else 'delay' end, job, place, before::text, due::text);
      return before;
    end if;
    perform rowlock.refuse(job, 'delayed');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Cancels a job that is not finished. A waiting one is gone at once. Of one that runs the lease is ended, so that nothing it
-- still does counts; its worker hears of it and stops it. It says where the job stood.
create function rowlock.cancel(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  why text := 'cancelled by ' || actor || coalesce(': ' || reason, '');
  turn bigint;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    place := null;
    with gone as (
      delete from rowlock.ready r where r.id = job returning r.epoch, r.attempt
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
      select job, g.epoch + 1, 0, g.attempt, 'cancelled', clock_timestamp(), clock_timestamp(), why from gone g
    )
    select 'ready' into place from gone;
    if place is null then
      with gone as (
        delete from rowlock.waiting w where w.id = job returning w.epoch, w.attempt, w.since
      ), logged as (
        insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
        select job, g.epoch + 1, 0, g.attempt, 'cancelled', g.since, clock_timestamp(), why from gone g
      )
      select 'waiting' into place from gone;
    end if;
    if place is null then
      -- It names no worker: the attempt did not end like this by its own doing, and must not take it for its commit.
      with gone as (
        delete from rowlock.lease l where l.id = job returning l.epoch, l.attempt, l.claimed_at
      ), logged as (
        insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
        select job, g.epoch, 0, g.attempt, 'cancelled', g.claimed_at, clock_timestamp(), why from gone g
      )
      select 'leased' into place from gone;
    end if;
    if place is not null then
      select j.group_no into turn from rowlock.job j where j.id = job;
      if turn is not null then
        perform rowlock.pass_turns(array[turn], array[job], null);
      end if;
      insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'cancel', job, reason, place, 'finished');
      return place;
    end if;
    perform rowlock.refuse(job, 'cancelled');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- Enqueues the compensations of jobs that were just retired, in the commit that retired them, as the next link of their chain;
-- once per job, and not while a parked effect of it is in doubt.
create function rowlock.compensate(retired bigint[], at timestamptz) returns table (id bigint, queue text)
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
#variable_conflict use_column
begin
  return query
  with input as materialized (
    select
      nextval('rowlock.job_id') as id, j.if_retired as c, coalesce(j.chain, j.id) as chain, j.position + 1 as position, j.trace,
      coalesce(compensate.at, clock_timestamp()) as now
    from rowlock.job j
    join rowlock.case_file f on f.id = j.id
    where j.id = any (retired) and j.if_retired is not null
      -- What it did when it was done still stands.
      and j.was_done is not true
      -- A person is still to say what happened, or has said it while the attempt ran, which may not have heard of it: the
      -- job may go on.
      and not exists (
        select from rowlock.effect e
        where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
          e.resolved_by is not null
          and e.ended_at >= (select o.started_at from rowlock.outcome o where o.id = f.id and o.epoch = f.epoch)
        ))
      )
      -- Retired before, and reopened.
      and not exists (
        select from rowlock.job x
        where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = (j.if_retired ->> 'uid')::uuid
      )
  ), body as (
    insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, trace, created_at)
    select
      id, (c ->> 'uid')::uuid, c ->> 'kind', (c ->> 'version')::int, c ->> 'queue', (c ->> 'priority')::smallint,
      (c ->> 'attempts_max')::int, c -> 'payload', (c -> 'tags')::jsonb, chain, position, trace, now
    from input
  ), place as (
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select
      (c ->> 'queue_no')::bigint, (c ->> 'kind_no')::bigint, false, (c ->> 'priority')::smallint, now, id, 0, 0,
      (c ->> 'attempts_max')::int
    from input
  )
  select id, c ->> 'queue' from input;
end
$body$;

-- Retires a job that is not finished, by hand: it becomes a case with its whole history, its compensation is enqueued, and its
-- group goes on or stops as it would. Of one that runs the lease is ended, as by a cancel. It says where the job stood.
create function rowlock.retire(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  why text := 'retired by ' || actor || coalesce(': ' || reason, '');
  turn bigint;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  for round in 1..20 loop
    with idle as (
      delete from rowlock.ready r where r.id = job returning r.epoch, r.attempt, r.attempts_max, r.queue_no, r.kind_no, r.priority
    ), waited as (
      delete from rowlock.waiting w where w.id = job
      returning w.epoch, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority
    ), ran as (
      delete from rowlock.lease l where l.id = job
      returning l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, l.claimed_at
    ), gone as (
      select
        'ready' as was, i.epoch + 1 as epoch, i.attempt, i.attempts_max, i.queue_no, i.kind_no, i.priority,
        clock_timestamp() as began, clock_timestamp() as now
      from idle i
      union all
      select 'waiting', w.epoch + 1, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority, clock_timestamp(), clock_timestamp()
      from waited w
      union all
      -- It names no worker: the attempt did not end like this by its own doing, and must not take it for its commit.
      select 'leased', l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, l.claimed_at, clock_timestamp()
      from ran l
    ), filed as (
      insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
      select
        job, g.epoch, g.attempt, g.attempts_max, g.queue_no, g.kind_no, g.priority, why, g.now,
        coalesce((
          select jsonb_agg(jsonb_build_object(
            'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
            'started_at', o.started_at, 'ended_at', o.ended_at, 'error', o.error) order by o.epoch)
          from rowlock.outcome o where o.id = job
        ), '[]') || jsonb_build_object(
          'epoch', g.epoch, 'attempt', g.attempt, 'outcome', 'retired', 'worker', 0,
          'started_at', g.began, 'ended_at', g.now, 'error', why)
      from gone g
    ), logged as (
      insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
      select job, g.epoch, 0, g.attempt, 'retired', g.began, g.now, why from gone g
    )
    select g.was into place from gone g;
    if place is not null then
      perform rowlock.compensate(array[job], null);
      select j.group_no into turn from rowlock.job j where j.id = job and not coalesce(j.group_stops, false);
      if turn is not null then
        perform rowlock.pass_turns(array[turn], array[job], null);
      end if;
      insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'retire', job, reason, place, 'case');
      return place;
    end if;
    perform rowlock.refuse(job, 'retired');
  end loop;
  raise exception 'job % keeps changing; try again', job using errcode = 'RL011';
end
$body$;

-- The number that a name has in the narrow tables: the first eight bytes of its SHA-256. A kind's has its version behind an @.
create function rowlock.number_of(name text) returns bigint
language sql immutable strict parallel safe
as $body$
  select ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint
$body$;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch: what it did once by an effect's or
-- the ledger's key is not done again, and links that it has are not made again. It waits for its turn behind its group, and for
-- its name where that is not completed. It says how the job ended before.
create function rowlock.rerun(job bigint, reason text, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  body record;
  last record;
  place text;
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  -- Two at once are one after the other, and whoever removes old bodies waits for this or was first.
  update rowlock.job j set reran_at = now where j.id = job
  returning
    j.kind || '@' || j.version as kind, j.queue, j.priority, j.attempts_max, j.waits_for, j.expires_at, j.group_no into body;
  if not found then
    raise exception 'no job %', job using errcode = 'RL010';
  end if;
  select j.state into place from rowlock.jobs j where j.id = job;
  if place <> 'finished' then
    raise exception 'job % is %, and cannot be re-run', job, place using errcode = 'RL011';
  end if;
  select o.epoch, o.outcome into last from rowlock.outcome o where o.id = job order by o.epoch desc limit 1;
  if not found or last.outcome not in ('done', 'cancelled') then
    raise exception 'the history of job % was removed, and it cannot be re-run', job using errcode = 'RL011';
  end if;
  if body.expires_at <= now then
    raise exception 'job % expired at %, and cannot be re-run', job, body.expires_at using errcode = 'RL011';
  end if;
  if exists (select from rowlock.outcome o where o.id = job and o.outcome = 'done') then
    update rowlock.job j set was_done = true where j.id = job;
  end if;
  if body.group_no is not null then
    -- The group's row is held from here on, so that nobody takes it for empty; then it is this job's turn, or it waits.
    insert into rowlock.job_group as g (no) values (body.group_no) on conflict (no) do update set head = g.head;
    insert into rowlock.waiting (
      id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
    ) values (
      job, rowlock.number_of(body.queue), rowlock.number_of(body.kind), body.priority, now, last.epoch, 0, body.attempts_max,
      'cancelled', now, body.group_no
    );
    perform rowlock.pass_turns(array[body.group_no], array[null::bigint], null);
  elsif body.waits_for is not null and not exists (select from rowlock.completion c where c.name = body.waits_for) then
    insert into rowlock.waiting (
      id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
    ) values (
      job, body.waits_for, rowlock.number_of(body.queue), rowlock.number_of(body.kind), body.priority, now, last.epoch, 0,
      body.attempts_max, body.expires_at, 'cancelled', now
    );
  else
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (
      rowlock.number_of(body.queue), rowlock.number_of(body.kind), false, body.priority, now, job, last.epoch, 0, body.attempts_max
    );
  end if;
  insert into rowlock.audit (actor, verb, id, detail, before, after)
  select actor, 'rerun', job, reason, last.outcome, j.state from rowlock.jobs j where j.id = job;
  return last.outcome;
end
$body$;

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
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
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
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
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
    raise exception 'job % is not a case', job using errcode = 'RL011';
  end if;
  select j.group_no into turn from rowlock.job j where j.id = job;
  if turn is not null then
    perform rowlock.pass_turns(array[turn], array[job], null);
  end if;
  insert into rowlock.audit (actor, verb, id, detail, before, after) values (actor, 'close', job, reason, 'case', 'finished');
end
$body$;

revoke all on function rowlock.make_partitions(int, bigint) from public;
revoke all on function rowlock.drop_history(timestamptz) from public;
revoke all on function rowlock.settle_done(
  bigint, bigint, bigint, text, text, timestamptz, uuid, text, bigint, int, text, bigint, smallint, int, text, text, bigint,
  int, timestamptz, bigint, timestamptz, text, text) from public;
revoke all on function rowlock.pass_turns(bigint[], bigint[], timestamptz) from public;
-- Stops a queue, a kind or a group, given as queue:mail, kind:send-mail or group:account:42: nobody claims its jobs until it is
-- resumed, and workers heed it within a second. What runs goes on. It says whether it went on before.
create function rowlock.pause(target text, actor text) returns boolean
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
    -- Its head goes back behind nobody, unless somebody is claiming it just now: the sweep looks again.
    with due as materialized (
      select g.no, r.id from rowlock.job_group g join rowlock.ready r on r.id = g.head where g.no = turn
      for update of r skip locked
    ), gone as (
      delete from rowlock.ready r using due d where r.id = any (array[d.id])
      returning d.no, r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max
    ), behind as (
      insert into rowlock.waiting (
        id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
      )
      select
        id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, 'cancelled', clock_timestamp(), no
      from gone
    )
    update rowlock.job_group g set head = null from gone d where g.no = any (array[d.no]);
  end if;
  insert into rowlock.audit (actor, verb, id, detail) values (actor, 'pause', 0, target);
  return true;
end
$body$;

-- Lets go on what was paused, within a second. It says whether it was paused.
create function rowlock.resume(target text, actor text) returns boolean
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

revoke all on function rowlock.refuse(bigint, text) from public;
revoke all on function rowlock.delay(bigint, timestamptz, text) from public;
revoke all on function rowlock.cancel(bigint, text, text) from public;
-- Puts a case back with all its attempts: to ready, or to wait for its name where that is not completed, or for its turn behind
-- its group. The epoch goes on rising, so no old token fits again. It says where the job stands now; RL010 where there is no
-- such job, RL011 where it is no case.
create function rowlock.reopen(job bigint, actor text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  file record;
  body record;
  turn record;
  place text := 'ready';
begin
  if actor is null then
    raise exception 'the actor is missing; say who does it' using errcode = 'RL011';
  end if;
  delete from rowlock.case_file c where c.id = job
  returning c.epoch, c.attempts_max, c.queue_no, c.kind_no, c.priority into file;
  if not found then
    if not exists (select from rowlock.job j where j.id = job) then
      raise exception 'no job %', job using errcode = 'RL010';
    end if;
    raise exception 'job % is not a case', job using errcode = 'RL011';
  end if;
  select j.waits_for, j.expires_at, j.group_no into body from rowlock.job j where j.id = job;
  if body.group_no is not null then
    -- The group's row is held from here on, so that nobody takes it for empty.
    insert into rowlock.job_group as g (no) values (body.group_no) on conflict (no) do update set head = g.head
    returning g.head, g.paused into turn;
    -- The head of a group that it has stopped still has its turn.
    if turn.head is distinct from job or turn.paused then
      place := 'waiting';
      update rowlock.job_group g set head = null where g.no = body.group_no and g.head = job;
    end if;
  elsif body.waits_for is not null and not exists (select from rowlock.completion c where c.name = body.waits_for) then
    place := 'waiting';
  end if;
  if place = 'ready' then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (file.queue_no, file.kind_no, false, file.priority, now, job, file.epoch, 0, file.attempts_max);
  else
    insert into rowlock.waiting (
      id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
    ) values (
      job, case when body.group_no is null then body.waits_for end, file.queue_no, file.kind_no, file.priority, now, file.epoch, 0,
      file.attempts_max, case when body.group_no is null then body.expires_at end, 'cancelled', now, body.group_no
    );
    if body.group_no is not null then
      perform rowlock.pass_turns(array[body.group_no], array[null::bigint], null);
      place := case when exists (select from rowlock.ready r where r.id = job) then 'ready' else 'waiting' end;
    end if;
  end if;
  insert into rowlock.audit (actor, verb, id, before, after) values (actor, 'reopen', job, 'case', place);
  return place;
end
$body$;

revoke all on function rowlock.reopen(bigint, text) from public;
revoke all on function rowlock.close_case(bigint, text, text) from public;
revoke all on function rowlock.edit_case(bigint, json, text) from public;
revoke all on function rowlock.drop_audit(timestamptz, bigint) from public;
revoke all on function rowlock.compensate(bigint[], timestamptz) from public;
revoke all on function rowlock.retire(bigint, text, text) from public;
revoke all on function rowlock.number_of(text) from public;
revoke all on function rowlock.rerun(bigint, text, text) from public;
revoke all on function rowlock.pause(text, text) from public;
revoke all on function rowlock.resume(text, text) from public;

-- The protocol for every language: what ends in _v1 stays as it is; a change comes as _v2 beside it. Each runs with the caller's
-- rights, in the caller's transaction, whatever the search path. RL001: the token holds no more. RL003: the key is held for
-- another request. RL010: no such job. RL011: it stands elsewhere. RL012: bad input, with the field.

-- The job that a worker of these functions runs alone, or ran last: a claim looks it up and does not read all leases for it.
alter table rowlock.worker add column alone bigint;

-- Takes a whole number out of options, or what it is without one.
create function rowlock.number_option(options json, field text, otherwise bigint, low bigint, high bigint) returns bigint
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if given is null then
    return otherwise;
  end if;
  if json_typeof(options -> field) <> 'number' or given !~ '^-?[0-9]{1,18}$' or given::bigint not between low and high then
    raise exception '%: % is not a whole number from % to %', field, left(given, 40), low, high using errcode = 'RL012';
  end if;
  return given::bigint;
end
$body$;

-- Takes a name out of options, or what it is without one: what people type and read.
create function rowlock.name_option(options json, field text, otherwise text) returns text
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := coalesce(options ->> field, otherwise);
begin
  if given !~ '^[A-Za-z0-9_.:/-]{1,100}$' then
    raise exception '%: "%" is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/', field, left(given, 40) using errcode = 'RL012';
  end if;
  return given;
end
$body$;

-- Takes a key out of options: what callers make up.
create function rowlock.key_option(options json, field text) returns text
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if octet_length(given) not between 1 and 250 or given ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception '%: "%" is not valid; use 1 to 250 bytes without control characters', field, left(given, 40) using errcode = 'RL012';
  end if;
  return given;
end
$body$;

-- Takes a time out of options. It must say its zone: the session's is nobody's business.
create function rowlock.time_option(options json, field text) returns timestamptz
language plpgsql stable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given text := options ->> field;
begin
  if given is null then
    return null;
  end if;
  if given !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' then
    raise exception '%: "%" is not a time, such as 2030-01-01T12:00:00Z', field, left(given, 40) using errcode = 'RL012';
  end if;
  return least(greatest(given::timestamptz, '1970-01-01T00:00:00Z'), '9998-12-31T00:00:00Z');
exception
  when invalid_datetime_format or datetime_field_overflow or invalid_time_zone_displacement_value then
    raise exception '%: "%" is not a time, such as 2030-01-01T12:00:00Z', field, left(given, 40) using errcode = 'RL012';
end
$body$;

-- JSON in the one form that fingerprints are taken over: fields in order, no spaces, strings written one way, numbers as given.
create function rowlock.canonical(value json) returns text
language plpgsql immutable strict parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  case json_typeof(value)
    when 'object' then
      return '{' || coalesce((
        select string_agg(to_json(f.key)::text || ':' || rowlock.canonical(f.value) || ',', '' order by f.key collate "C")
        from (
          -- Of a field that is given twice the last one counts.
          select distinct on (e.key collate "C") e.key, e.value
          from json_each(value) with ordinality as e (key, value, no)
          order by e.key collate "C", e.no desc
        ) f
      ), '') || '}';
    when 'array' then
      return '[' || coalesce((
        select string_agg(rowlock.canonical(e.item) || ',', '' order by e.no)
        from json_array_elements(value) with ordinality as e (item, no)
      ), '') || ']';
    when 'string' then
      return to_json(value #>> '{}')::text;
    else
      return btrim(value::text, e' \t\n\r');
  end case;
end
$body$;

-- What tells two requests apart that come under one key.
create function rowlock.fingerprint(what text, request json) returns bytea
language sql immutable strict parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
  select sha256(convert_to(what, 'UTF8') || '\x00'::bytea || convert_to(rowlock.canonical(request), 'UTF8'))
$body$;

-- Refuses JSON with strings that are none: a NUL character, or half of a surrogate pair. To be called before any field is read,
-- which would fail without a code of ours. It says what it was given.
create function rowlock.check_strings(field text, value json) returns json
language plpgsql immutable security invoker set search_path = pg_catalog, pg_temp
as $body$
begin
  if value::text ~ '(^|[^\\])(\\\\)*\\u0000' then
    raise exception '%: a string contains a NUL character; PostgreSQL cannot store it', field using errcode = 'RL012';
  end if;
  if value::text ~ '\\u[dD][89a-fA-F]' then
    begin
      perform value::jsonb;
    exception
      when data_exception then
        raise exception '%: a string contains half of a surrogate pair', field using errcode = 'RL012';
    end;
  end if;
  return value;
end
$body$;

-- Refuses JSON that the product does not store: too large, too deep, or with strings that are none.
create function rowlock.check_json(field text, value json) returns void
language plpgsql immutable security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  -- Brackets alone, without those inside of strings.
  bare constant text := regexp_replace(regexp_replace(value::text, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g');
  shut text := bare;
begin
  if octet_length(value::text) > 1048576 then
    raise exception '%: % bytes, at most 1048576; store large data elsewhere and enqueue a reference to it', field, octet_length(value::text)
      using errcode = 'RL012';
  end if;
  perform rowlock.check_strings(field, value);
  -- Each round takes the innermost level away.
  for level in 1..100 loop
    exit when shut = '';
    shut := regexp_replace(shut, '\[\]|\{\}', '', 'g');
  end loop;
  if shut <> '' then
    raise exception '%: nested deeper than 100 levels', field using errcode = 'RL012';
  end if;
end
$body$;

-- Enters a job to come into its group, which is kept from being removed until the transaction ends; says whether it is its turn.
create function rowlock.enter_group(turn bigint, job bigint) returns boolean
language plpgsql security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  vacant boolean;
begin
  for round in 1..20 loop
    select g.vacant and not g.paused into vacant from rowlock.job_group g where g.no = turn for key share;
    if not found then
      insert into rowlock.job_group (no, head) values (turn, job) on conflict (no) do nothing;
      if found then
        return true;
      end if;
      continue;
    end if;
    if not vacant then
      return false;
    end if;
    begin
      perform from rowlock.job_group g
      where g.no = turn and g.vacant and not g.paused and not exists (select from rowlock.waiting w where w.group_no = turn)
      for no key update of g skip locked;
      if found then
        update rowlock.job_group g set head = job where g.no = turn;
        return true;
      end if;
      -- What is locked and not taken is let go: whoever passes its turn on must not wait for this transaction.
      raise exception 'not vacant' using errcode = 'RL099';
    exception
      when sqlstate 'RL099' then
        return false;
    end;
  end loop;
  raise exception 'the group keeps changing; try again' using errcode = '40001';
end
$body$;

-- Takes a key for a job to come: its id, and true where nobody held the key; else the id of the job that holds it.
create function rowlock.take_key(
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
    -- Removed meanwhile.
    continue when not found;
    if not held.in_a_place and (held.hold = 'open' or (held.hold = 'period' and held.passed)) then
      update rowlock.job_key k
      set id = nextval('rowlock.job_id'), fingerprint = print, hold = hold_for, expires_at = now + period, made_at = now
      where k.key = wanted and k.id = held.id
      returning k.id into job;
      -- Somebody else was faster.
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

-- What a job is asked to be, checked: refuses options that there are not, and those that contradict each other.
create function rowlock.check_options(options json, known text[]) returns void
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  odd text;
begin
  if options is null or json_typeof(options) <> 'object' then
    raise exception 'options: use an object such as {"queue": "mail"}' using errcode = 'RL012';
  end if;
  select k.key into odd from json_object_keys(options) as k (key) where k.key <> all (known) limit 1;
  if found then
    raise exception '%: unknown option; the options are %', left(odd, 40), array_to_string(known, ', ') using errcode = 'RL012';
  end if;
end
$body$;

-- A job as the body of another holds it, to be enqueued in the commit that retires that one.
create function rowlock.compensation(given json) returns json
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  kind text;
  queue text;
  version int;
begin
  perform rowlock.check_options(given, array['kind', 'payload', 'queue', 'priority', 'attempts', 'version', 'tags']);
  kind := rowlock.name_option(given, 'kind', '');
  queue := rowlock.name_option(given, 'queue', 'default');
  version := rowlock.number_option(given, 'version', 1, 1, 1000000);
  perform rowlock.check_json('payload', coalesce(given -> 'payload', '{}'));
  return json_build_object(
    'uid', gen_random_uuid(), 'kind', kind, 'kind_no', rowlock.number_of(kind || '@' || version), 'version', version,
    'queue', queue, 'queue_no', rowlock.number_of(queue), 'priority', rowlock.number_option(given, 'priority', 3, 1, 5),
    'attempts_max', rowlock.number_option(given, 'attempts', 10, 1, 10000),
    'payload', coalesce(given -> 'payload', '{}'), 'tags', rowlock.tags_option(given));
end
$body$;

-- Takes tags out of options: an array of names.
create function rowlock.tags_option(options json) returns json
language plpgsql immutable parallel safe security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  given json := options -> 'tags';
begin
  if given is null or json_typeof(given) = 'null' then
    return null;
  end if;
  if json_typeof(given) <> 'array' or json_array_length(given) > 32
    or exists (select from json_array_elements(given) t where json_typeof(t) <> 'string' or t #>> '{}' !~ '^[A-Za-z0-9_.:/-]{1,100}$')
  then
    raise exception 'tags: use up to 32 names of 1 to 100 of a-z, A-Z, 0-9 and -_.:/' using errcode = 'RL012';
  end if;
  return case when json_array_length(given) > 0 then given end;
end
$body$;

-- Enqueues a job in the caller's transaction, with what may be chosen for it in `options`. The id comes back, and whether the
-- job is new: under a key that is held for the same request it is the id of the job that holds it.
create function rowlock.enqueue_v1(
  kind text, payload json default '{}', options json default '{}', out id bigint, out is_new boolean
)
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  now constant timestamptz := clock_timestamp();
  named constant text := rowlock.name_option(json_build_object('kind', enqueue_v1.kind), 'kind', '');
  body constant json := coalesce(enqueue_v1.payload, '{}');
  given constant json := rowlock.check_strings('options', coalesce(options, '{}'));
  queue text := rowlock.name_option(given, 'queue', 'default');
  version constant int := rowlock.number_option(given, 'version', 1, 1, 1000000);
  priority constant int := rowlock.number_option(given, 'priority', 3, 1, 5);
  attempts constant int := rowlock.number_option(given, 'attempts', 10, 1, 10000);
  delay_ms constant bigint := rowlock.number_option(given, 'delay_ms', 0, 0, 316224000000);
  key constant text := rowlock.key_option(given, 'key');
  waits_for constant text := rowlock.key_option(given, 'waits_for');
  limit_ms constant bigint := rowlock.number_option(given, 'wait_limit_ms', null, 0, 316224000000);
  hold_ms constant bigint := rowlock.number_option(given, 'hold_ms', null, 1, 316224000000);
  hold constant text := coalesce(given ->> 'hold', case when hold_ms is null then 'policy' else 'period' end);
  expires constant timestamptz := rowlock.time_option(given, 'expires');
  -- Untriggered: a day behind the latest time that anybody can ask for.
  due constant timestamptz := case given ->> 'on_trigger'
    when 'true' then '9999-01-02T00:00:00Z'
    else greatest(coalesce(rowlock.time_option(given, 'at'), now + delay_ms * interval '1 millisecond'), now)
  end;
  kind_no constant bigint := rowlock.number_of(named || '@' || version);
  queue_no constant bigint := rowlock.number_of(queue);
  limit_at constant timestamptz := now + limit_ms * interval '1 millisecond';
  turn bigint;
  place text := 'ready';
begin
  perform rowlock.check_options(given, array[
    'at', 'attempts', 'delay_ms', 'expires', 'group', 'group_stops', 'hold', 'hold_ms', 'if_retired', 'key', 'on_trigger', 'priority',
    'queue', 'tags', 'trace', 'version', 'wait_limit_ms', 'waits_for']);
  perform rowlock.check_json('payload', body);
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
  if limit_ms is not null and waits_for is null then
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
  if given ->> 'group' is not null then
    if waits_for is not null then
      raise exception 'group: a job of a group cannot also wait for a name; let a job that waits enqueue it as its next job'
        using errcode = 'RL012';
    end if;
    turn := rowlock.number_of(rowlock.name_option(given, 'group', ''));
  end if;
  is_new := true;
  if key is not null then
    select k.job, k.is_new into id, is_new
    from rowlock.take_key(key, rowlock.fingerprint(named, body), hold, hold_ms * interval '1 millisecond') k;
    if not is_new then
      return;
    end if;
  else
    id := nextval('rowlock.job_id');
  end if;
  if turn is not null then
    place := case when rowlock.enter_group(turn, id) then 'ready' else 'waiting' end;
  elsif waits_for is not null and not exists (select from rowlock.completion c where c.name = waits_for) then
    place := 'waiting';
  end if;
  insert into rowlock.job (
    id, uid, kind, version, queue, priority, attempts_max, payload, tags, position, expires_at, if_retired, trace, created_at,
    waits_for, in_group, group_no, group_stops
  ) values (
    id, gen_random_uuid(), named, version, queue, priority, attempts, body, rowlock.tags_option(given)::jsonb, 0, expires,
    case when json_typeof(given -> 'if_retired') = 'object' then rowlock.compensation(given -> 'if_retired') end,
    given ->> 'trace', now, waits_for, given ->> 'group', turn,
    case when turn is not null then coalesce(given ->> 'group_stops' = 'true', false) end
  );
  if place = 'ready' then
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    values (queue_no, kind_no, false, priority, due, id, 0, 0, attempts);
  elsif turn is not null then
    insert into rowlock.waiting (
      id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
    ) values (id, queue_no, kind_no, priority, due, 0, 0, attempts, 'cancelled', now, turn);
  else
    insert into rowlock.waiting (
      id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
    ) values (
      id, waits_for, queue_no, kind_no, priority, due, 0, 0, attempts, least(limit_at, expires),
      case when expires <= coalesce(limit_at, 'infinity') then 'cancelled' else 'retired' end, now
    );
  end if;
end
$body$;

-- Enqueues many: an array of objects with kind, payload and what enqueue_v1 takes as options. In the order given.
create function rowlock.enqueue_many_v1(jobs json, out ord int, out id bigint, out is_new boolean) returns setof record
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

-- Hints at new work in a queue: call it after the commit, so that idle workers look at once and not within their next poll.
create function rowlock.wake_v1(queue text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select pg_notify(split_part('rowlock.', '.', 1) || '_wake', rowlock.number_of(queue)::text)
$body$;

-- Enters a worker process and says its number, which its claims and tokens carry. It must beat within its lease.
create function rowlock.join_v1(name text, lease_ms int default 30000) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
declare
  -- Random: a number that comes again could make an old token fit.
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

-- Renews everything a worker holds. RL001 where it was declared dead: it holds nothing any more, and must join again.
create function rowlock.beat_v1(worker bigint) returns void
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

-- Takes a worker off the list; whatever it may still hold is recovered at once.
create function rowlock.leave_v1(worker bigint) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  update rowlock.worker w set dead = true where w.id = worker and not w.dead
$body$;

-- The token of a lease, as text and back.
create function rowlock.lease_of(token text, out id bigint, out epoch bigint, out worker bigint)
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
create function rowlock.settle_lease(token text, ended text, place text, delay interval, why text) returns void
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

-- Takes up to so many due jobs of a queue and of these kinds under the worker's lease, most urgent first. A kind is a name, or a
-- name with the highest payload version that is understood, such as charge@2. Nothing comes of what is paused, nor while one of
-- the named breakers is not closed. Each job with its token; RL001 where the worker was declared dead. Commit it before the work.
-- A job that was lost comes alone, to empty hands; where others wait too, one or the other, by chance.
create function rowlock.claim_v1(worker bigint, queue text, kinds text[], most int default 1, breakers text[] default null)
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
    -- Whoever opens one waits for this; what is read next is newer than whoever was waited for.
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
  -- What was lost once runs alone: the one job of a worker that holds nothing.
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
    -- Another claim of the same worker may be taking it: what is read next is newer.
    perform from rowlock.worker w where w.id = claim_v1.worker for no key update;
  end if;
  -- Nothing beside what runs alone, until that has taken a whole lease.
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
      -- Its hands must get empty for what waits to run alone, unless something long keeps them full.
      return;
    end if;
  end if;
  foreach apart in array tries loop
    with gone as (
      delete from rowlock.ready where ctid = any (array(
        select spot.ctid from (
          select due.ctid
          from (
            -- None of these kinds comes before the others each time.
            select p.no as priority, k.no as kind_no from generate_series(1, 5) as p (no) cross join unnest(lanes) as k (no)
            order by 1, random()
          ) lane
          cross join lateral (
            select r.ctid from rowlock.ready r
            where r.queue_no = here and r.kind_no = lane.kind_no and r.alone = apart and r.priority = lane.priority and r.due_at <= now
              -- The head of a group that is paused may be back from an attempt.
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
    perform rowlock.settle_lease(
      late.id || '-' || late.epoch || '-' || claim_v1.worker, 'cancelled', 'finished', null, 'expired before it started');
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

-- Records in the caller's own transaction that the attempt is done, with what it returns and the link that follows, if any, as
-- {"kind", "payload", …}: both happen if and only if the transaction commits. RL001 where the token holds no more.
create function rowlock.done_v1(token text, result json default null, next json default null) returns void
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
create function rowlock.fail_v1(token text, error text, retry_ms bigint default null) returns text
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
create function rowlock.defer_v1(token text, delay_ms bigint, reason text default null) returns void
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
create function rowlock.release_v1(token text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'released', 'ready', interval '0', null)
$body$;

-- Gives the job up: it becomes a case, whatever attempts it has left.
create function rowlock.retire_v1(token text, error text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'retired', 'case', null, error)
$body$;

-- Ends the job without its effect, on purpose.
create function rowlock.cancel_v1(token text, reason text) returns void
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$
  select rowlock.settle_lease(token, 'cancelled', 'finished', null, reason)
$body$;

-- Declares dead every worker that stopped beating, and ends what the dead hold: the attempt stays counted, and the job is due
-- again, or a case when its attempts are used up. Workers of the library do so by themselves; call it where there are none. It
-- says how many leases it ended.
create function rowlock.recover_v1(most int default 1000) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off
as $body$
declare
  lost constant text := 'worker lost: it stopped renewing its lease';
  ended bigint := 0;
  one record;
  token text;
  turn bigint;
  groups bigint[];
  empty bigint[];
  gone bigint[];
begin
  if recover_v1.most is null or recover_v1.most < 1 then
    raise exception 'most: % is not a whole number from 1', recover_v1.most using errcode = 'RL012';
  end if;
  -- Nobody could beat while the server was away. One whose beat is not committed falls to the next round.
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
      -- Its turn is passed on: whoever has the group is not waited for.
      select j.group_no into turn from rowlock.job j where j.id = one.id and not coalesce(j.group_stops, false);
      perform from rowlock.job_group g where g.no = turn for no key update skip locked;
      continue when not found and exists (select from rowlock.job_group g where g.no = turn);
    end if;
    token := one.id || '-' || one.epoch || '-' || one.worker;
    perform rowlock.settle_lease(token, 'lost', case when one.again then 'ready' else 'case' end, interval '0', lost);
    -- What was lost runs alone next time.
    update rowlock.ready r set alone = true where r.id = one.id and one.again;
    ended := ended + 1;
  end loop;
  -- A name that was completed while somebody began to wait for it.
  with taken as materialized (
    select w.id from rowlock.waiting w join rowlock.completion c on c.name = w.name
    where w.name is not null
    limit recover_v1.most
    for update of w skip locked
  ), moved as (
    delete from rowlock.waiting w using taken t where w.id = any (array[t.id])
    returning w.id, w.queue_no, w.kind_no, w.priority, greatest(w.due_at, clock_timestamp()) as due_at, w.epoch, w.attempt, w.attempts_max
  )
  insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
  select m.queue_no, m.kind_no, false, m.priority, m.due_at, m.id, m.epoch, m.attempt, m.attempts_max from moved m;
  -- The head of a paused group that came back from an attempt stands behind nobody, as group/withdraw.sql does it.
  with due as materialized (
    select g.no, r.id
    from rowlock.job_group g join rowlock.ready r on r.id = g.head
    where g.paused
    limit recover_v1.most
    for no key update of g skip locked
    for update of r skip locked
  ), gone as (
    delete from rowlock.ready r using due d where r.id = any (array[d.id])
    returning d.no, r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max
  ), behind as (
    insert into rowlock.waiting (
      id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
    )
    select
      id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, 'cancelled', clock_timestamp(), no
    from gone
  )
  update rowlock.job_group g set head = null from gone d where g.no = any (array[d.no]);
  -- A turn that was passed on while somebody entered the group had nobody to go to.
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
  -- What follows asks again after it locked, and needs to see what was committed meanwhile.
  if current_setting('transaction_isolation') <> 'read committed' then
    return ended;
  end if;
  -- Groups that nobody is in, nor about to be.
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
  -- Dead workers that hold nothing, and are not about to.
  select array_agg(v.id) into gone from (select w.id from rowlock.worker w where w.dead for update skip locked) v;
  if gone is not null then
    with holding as materialized (select distinct l.worker from rowlock.lease l where l.worker = any (gone))
    delete from rowlock.worker w where w.id = any (gone) and not exists (select from holding h where h.worker = w.id);
  end if;
  return ended;
end
$body$;

-- Completes a name in the caller's transaction, once, with an answer for the jobs that wait for it, now or later. It says how many
-- went to ready, and nothing where the name was completed before.
create function rowlock.complete_v1(name text, answer json default null) returns bigint
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
#variable_conflict use_column
declare
  wanted constant text := rowlock.key_option(json_build_object('name', complete_v1.name), 'name');
  jobs bigint;
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
  with moved as (
    delete from rowlock.waiting w where w.name = wanted
    returning w.id, w.queue_no, w.kind_no, w.priority, greatest(w.due_at, clock_timestamp()) as due_at, w.epoch, w.attempt, w.attempts_max
  ), place as (
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select queue_no, kind_no, false, priority, due_at, id, epoch, attempt, attempts_max from moved
  )
  select count(*) into jobs from moved;
  return jobs;
end
$body$;

-- Takes a key for what happens once, in the caller's transaction: the first is told so, does the work and stores its answer under
-- the slot in the same transaction; every repeat gets that answer. Waits for an open twin. RL003 where the key was taken for
-- another request.
create function rowlock.once_v1(
  key text, request json default null, options json default '{}', out is_first boolean, out answer json, out slot timestamptz
)
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  -- In milliseconds: some drivers carry a time through no finer, and the slot must come back as it was.
  now constant timestamptz := date_trunc('milliseconds', clock_timestamp());
  wanted constant text := rowlock.key_option(json_build_object('key', once_v1.key), 'key');
  given constant json := rowlock.check_strings('options', coalesce(options, '{}'));
  hold_ms constant bigint := rowlock.number_option(given, 'hold_ms', null, 1, 3162240000000);
  hold_for constant text := coalesce(given ->> 'hold', case when hold_ms is null then 'policy' else 'period' end);
  print bytea;
  held record;
begin
  perform rowlock.check_options(given, array['hold', 'hold_ms']);
  if request is not null then
    perform rowlock.check_json('request', request);
    print := rowlock.fingerprint('once', request);
  end if;
  if wanted is null then
    raise exception 'key: missing; give one' using errcode = 'RL012';
  end if;
  if hold_for not in ('policy', 'ever', 'period') or (hold_for = 'period') <> (hold_ms is not null) then
    raise exception 'hold: "%" is not valid; use policy or ever, or hold_ms alone', left(hold_for, 40) using errcode = 'RL012';
  end if;
  is_first := true;
  for round in 1..50 loop
    insert into rowlock.ledger (key, fingerprint, hold, expires_at, made_at)
    values (wanted, print, hold_for, now + hold_ms * interval '1 millisecond', now)
    on conflict on constraint ledger_pkey do nothing
    returning made_at into slot;
    exit when found;
    select l.fingerprint, l.answer, l.made_at, coalesce(l.expires_at <= now, false) as over into held
    from rowlock.ledger l where l.key = wanted;
    -- Removed meanwhile.
    continue when not found;
    if held.over then
      update rowlock.ledger l
      set fingerprint = print, answer = null, hold = hold_for, expires_at = now + hold_ms * interval '1 millisecond', made_at = now
      where l.key = wanted and l.made_at = held.made_at and l.expires_at <= now
      returning l.made_at into slot;
      exit when found;
      continue;
    end if;
    if print is not null and held.fingerprint is not null and held.fingerprint <> print then
      raise exception 'key "%" is already used by a different request', wanted using errcode = 'RL003';
    end if;
    -- Only the first has a slot.
    is_first := false;
    answer := held.answer;
    return;
  end loop;
  if slot is null then
    raise exception 'key "%" keeps changing; try again', wanted using errcode = '40001';
  end if;
  -- What this transaction took, for answer_v1. It goes with the transaction, or with the savepoint that is rolled back.
  perform set_config(
    'rowlock_tx.once', coalesce(nullif(current_setting('rowlock_tx.once', true), ''), ',') || rowlock.number_of(wanted) || ',', true);
end
$body$;

-- Stores the answer that every repeat will get, in the transaction that took the key.
create function rowlock.answer_v1(key text, slot timestamptz, answer json) returns void
language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
begin
  perform rowlock.check_json('answer', answer_v1.answer);
  update rowlock.ledger l set answer = answer_v1.answer
  where l.key = answer_v1.key and l.made_at = answer_v1.slot
    and position(',' || rowlock.number_of(answer_v1.key) || ',' in current_setting('rowlock_tx.once', true)) > 0;
  if not found then
    raise exception 'the ledger has no entry "%" of this transaction; store the answer in the transaction that took the key', key
      using errcode = 'RL010';
  end if;
end
$body$;

-- What people do, as ever with a note in the audit: see the functions of the same names.
create function rowlock.pause_v1(target text, actor text) returns boolean
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.pause(target, actor) $body$;
create function rowlock.resume_v1(target text, actor text) returns boolean
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.resume(target, actor) $body$;
create function rowlock.delay_v1(job bigint, until timestamptz, actor text) returns timestamptz
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.delay(job, until, actor) $body$;
create function rowlock.cancel_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.cancel(job, reason, actor) $body$;
create function rowlock.retire_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.retire(job, reason, actor) $body$;
create function rowlock.rerun_v1(job bigint, reason text, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.rerun(job, reason, actor) $body$;
create function rowlock.reopen_v1(job bigint, actor text) returns text
language sql volatile security invoker set search_path = pg_catalog, pg_temp
as $body$ select rowlock.reopen(job, actor) $body$;

-- Nobody may call any of these until he is told that he may.
revoke all on function rowlock.number_option from public;
revoke all on function rowlock.name_option from public;
revoke all on function rowlock.key_option from public;
revoke all on function rowlock.time_option from public;
revoke all on function rowlock.canonical from public;
revoke all on function rowlock.fingerprint from public;
revoke all on function rowlock.check_strings from public;
revoke all on function rowlock.check_json from public;
revoke all on function rowlock.enter_group from public;
revoke all on function rowlock.take_key from public;
revoke all on function rowlock.check_options from public;
revoke all on function rowlock.compensation from public;
revoke all on function rowlock.tags_option from public;
revoke all on function rowlock.enqueue_v1 from public;
revoke all on function rowlock.enqueue_many_v1 from public;
revoke all on function rowlock.wake_v1 from public;
revoke all on function rowlock.join_v1 from public;
revoke all on function rowlock.beat_v1 from public;
revoke all on function rowlock.leave_v1 from public;
revoke all on function rowlock.lease_of from public;
revoke all on function rowlock.settle_lease from public;
revoke all on function rowlock.claim_v1 from public;
revoke all on function rowlock.done_v1 from public;
revoke all on function rowlock.fail_v1 from public;
revoke all on function rowlock.defer_v1 from public;
revoke all on function rowlock.release_v1 from public;
revoke all on function rowlock.retire_v1(text, text) from public;
revoke all on function rowlock.retire_v1(bigint, text, text) from public;
revoke all on function rowlock.cancel_v1(text, text) from public;
revoke all on function rowlock.cancel_v1(bigint, text, text) from public;
revoke all on function rowlock.recover_v1 from public;
revoke all on function rowlock.complete_v1 from public;
revoke all on function rowlock.once_v1 from public;
revoke all on function rowlock.answer_v1 from public;
revoke all on function rowlock.pause_v1 from public;
revoke all on function rowlock.resume_v1 from public;
revoke all on function rowlock.delay_v1 from public;
revoke all on function rowlock.rerun_v1 from public;
revoke all on function rowlock.reopen_v1 from public;
