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
    raise exception 'say who does it' using errcode = 'RL011';
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
  raise exception 'job % does not stand still; try again', job using errcode = 'RL011';
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
    raise exception 'say who does it' using errcode = 'RL011';
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
  raise exception 'job % does not stand still; try again', job using errcode = 'RL011';
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
    raise exception 'say who does it' using errcode = 'RL011';
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
  raise exception 'job % does not stand still; try again', job using errcode = 'RL011';
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
    raise exception 'say who does it' using errcode = 'RL011';
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
    raise exception 'the history of job % is gone, and it cannot be re-run', job using errcode = 'RL011';
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

revoke all on function rowlock.make_partitions(int, bigint) from public;
revoke all on function rowlock.drop_history(timestamptz) from public;
revoke all on function rowlock.settle_done(
  bigint, bigint, bigint, text, text, timestamptz, uuid, text, bigint, int, text, bigint, smallint, int, text, text, bigint,
  int, timestamptz, bigint, timestamptz, text, text) from public;
revoke all on function rowlock.pass_turns(bigint[], bigint[], timestamptz) from public;
revoke all on function rowlock.refuse(bigint, text) from public;
revoke all on function rowlock.delay(bigint, timestamptz, text) from public;
revoke all on function rowlock.cancel(bigint, text, text) from public;
revoke all on function rowlock.close_case(bigint, text, text) from public;
revoke all on function rowlock.edit_case(bigint, json, text) from public;
revoke all on function rowlock.drop_audit(timestamptz, bigint) from public;
revoke all on function rowlock.compensate(bigint[], timestamptz) from public;
revoke all on function rowlock.retire(bigint, text, text) from public;
revoke all on function rowlock.number_of(text) from public;
revoke all on function rowlock.rerun(bigint, text, text) from public;
