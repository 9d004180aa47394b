-- The whole schema as it stands today; proven equal to the sum of the migrations by a test.
-- A job is in exactly one place (ready, waiting, lease, case_file), and moving it is the transition.

-- Which migrations have run, and the oldest schema number a binary may speak and still work here.
create table rowlock_migration (
  version integer primary key,
  name text not null,
  oldest integer not null,
  applied_at integer not null default (cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
) strict;

-- The body: written once at enqueue, and then by people only. Autoincrement, so that an id is never given twice.
create table rowlock_job (
  id integer primary key autoincrement,
  uid text not null check (length(uid) = 36),
  kind text not null,
  version integer not null,
  queue text not null,
  priority integer not null,
  attempts_max integer not null,
  payload text not null check (json_valid(payload)),
  tags text check (json_valid(tags)),
  chain integer,
  position integer not null,
  expires_at integer,
  if_retired text,
  trace text,
  reran_at integer,
  was_done integer,
  created_at integer not null,
  waits_for text,
  in_group text,
  group_no integer,
  group_stops integer
) strict;

-- A chain's root has no chain of its own; its links carry the root's id.
create index rowlock_job_chain on rowlock_job (chain, position) where chain is not null;

-- A completion is kept while a body names it.
create index rowlock_job_waits_for on rowlock_job (waits_for) where waits_for is not null;

-- The jobs of one group, for people.
create index rowlock_job_in_group on rowlock_job (in_group, id) where in_group is not null;

-- Due or scheduled. Narrow: it is written and removed once per attempt. The id is the row's place in the table, so
-- it needs no index of its own.
create table rowlock_ready (
  id integer primary key,
  queue_no integer not null,
  kind_no integer not null,
  alone integer not null check (alone in (0, 1)),
  priority integer not null,
  due_at integer not null,
  epoch integer not null check (epoch >= 0),
  attempt integer not null check (attempt >= 0),
  attempts_max integer not null
) strict;

create unique index rowlock_ready_order on rowlock_ready (queue_no, kind_no, alone, priority, due_at, id);

-- A worker has it. The token is (id, epoch, worker).
create table rowlock_lease (
  id integer primary key,
  epoch integer not null,
  worker integer not null,
  attempt integer not null,
  attempts_max integer not null,
  queue_no integer not null,
  kind_no integer not null,
  alone integer not null check (alone in (0, 1)),
  priority integer not null,
  claimed_at integer not null
) strict;

-- One row per ended attempt, whatever the end. Append-only; its row numbers rise with time, which is what pruning
-- walks along. Unique: a second end of the same attempt is refused whatever else goes wrong.
create table rowlock_outcome (
  id integer not null,
  epoch integer not null,
  worker integer not null,
  attempt integer not null,
  outcome text not null check (outcome in ('done', 'retried', 'deferred', 'released', 'retired', 'cancelled', 'lost')),
  started_at integer not null,
  ended_at integer not null,
  error text,
  result text
) strict;

create unique index rowlock_outcome_id on rowlock_outcome (id, epoch);

-- Retired, open for a decision; the history is copied in, so that it outlives the outcome log.
create table rowlock_case_file (
  id integer primary key,
  epoch integer not null,
  attempt integer not null,
  attempts_max integer not null,
  queue_no integer not null,
  kind_no integer not null,
  priority integer not null,
  reason text not null,
  retired_at integer not null,
  history text not null check (json_valid(history)),
  error_no integer,
  owner text,
  note text
) strict;
create index rowlock_case_file_error on rowlock_case_file (error_no, id);

-- Each error that cases have or had: their reasons without what differs from job to job.
create table rowlock_case_error (
  no integer primary key,
  error text not null,
  first_seen integer not null,
  last_seen integer not null,
  seen integer not null
) strict;

-- One row per worker process, beaten as one whatever it holds. A beat may be late because somebody's transaction
-- held the only write lock, so a stale worker is a suspect first, and dead when it is seen stale again.
create table rowlock_worker (
  id integer primary key,
  name text not null,
  lease_ms integer not null,
  beat integer not null,
  suspect_at integer,
  dead integer not null default 0 check (dead in (0, 1)),
  started_at integer not null
) strict;

-- What people did to jobs.
create table rowlock_audit (
  no integer primary key autoincrement,
  at integer not null,
  actor text not null,
  verb text not null,
  id integer not null,
  detail text,
  jobs integer not null default 1,
  before text,
  after text
) strict;

create index rowlock_audit_id on rowlock_audit (id);

-- The caller's name for a logical operation: one job per key while the key is held, decided by the primary key.
-- A key that is held by policy or for a period outlasts its time for as long as its job is in any place.
create table rowlock_job_key (
  key text primary key,
  id integer not null,
  fingerprint blob not null,
  hold text not null check (hold in ('open', 'policy', 'period', 'ever')),
  expires_at integer,
  made_at integer not null
) strict;

create index rowlock_job_key_id on rowlock_job_key (id);

-- What the sweep walks.
create index rowlock_job_key_made on rowlock_job_key (hold, made_at);

-- What was done once, by key, with the answer that every repeat gets. The answer is null when the first gave none.
create table rowlock_ledger (
  key text primary key,
  fingerprint blob,
  answer text check (json_valid(answer)),
  hold text not null check (hold in ('policy', 'period', 'ever')),
  expires_at integer,
  made_at integer not null
) strict;

-- What the sweep walks.
create index rowlock_ledger_made on rowlock_ledger (hold, made_at);

-- Outside calls: the intent is stored before the call, the reply after it. An open intent whose lease is gone is in doubt;
-- `doubt` says that an earlier call may have happened, which a later call's failure does not answer.
create table rowlock_effect (
  no integer primary key autoincrement,
  id integer not null,
  name text not null,
  key text not null,
  state text not null check (state in ('open', 'uncertain', 'replied', 'undone')),
  policy text not null check (policy in ('retry', 'park', 'ask')),
  fingerprint blob,
  tries integer not null,
  doubt integer not null default 0 check (doubt in (0, 1)),
  epoch integer not null,
  worker integer not null,
  begun_at integer not null,
  deadline_at integer not null,
  ended_at integer,
  reply text check (json_valid(reply)),
  error text,
  resolved_by text,
  unique (id, name)
) strict;

create index rowlock_effect_doubt on rowlock_effect (begun_at) where state in ('open', 'uncertain');

-- Every effect with its job, and its doubt spelled out: an open intent is in flight while its attempt holds the lease.
create view rowlock_effects as
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
from rowlock_effect e
left join rowlock_job j on j.id = e.id
left join rowlock_lease l on l.id = e.id and l.epoch = e.epoch and l.worker = e.worker;

-- What people set at run time, such as the percentage of a rollout.
create table rowlock_setting (
  name text primary key,
  value text not null,
  changed_at integer not null,
  changed_by text not null
) strict;

-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock_guard_version (
  key text primary key,
  version integer not null,
  changed_at integer not null
) strict;

-- Who may be in the body of work under a key. A row holds only while the lease of its token does.
create table rowlock_body_lock (
  key text not null,
  slot integer not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  taken_at integer not null,
  primary key (key, slot)
) strict;

-- Waits for somebody outside to complete the name, or for its turn behind the head of its group; then it moves to ready. Past
-- its limit it ends as said.
create table rowlock_waiting (
  id integer primary key,
  name text,
  queue_no integer not null,
  kind_no integer not null,
  priority integer not null,
  due_at integer not null,
  epoch integer not null,
  attempt integer not null,
  attempts_max integer not null,
  limit_at integer,
  limit_ends text not null check (limit_ends in ('retired', 'cancelled')),
  since integer not null,
  group_no integer,
  alone integer not null default 0,
  check ((name is null) <> (group_no is null))
) strict;

create index rowlock_waiting_name on rowlock_waiting (name);
create index rowlock_waiting_limit on rowlock_waiting (limit_at) where limit_at is not null;

-- The next of a group is the smallest.
create index rowlock_waiting_group on rowlock_waiting (group_no, id) where group_no is not null;

-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Only a paused group has no head.
create table rowlock_job_group (
  no integer primary key,
  head integer,
  paused integer not null default 0
) strict;

create index rowlock_job_group_paused on rowlock_job_group (no) where paused = 1;

-- What was completed, with the answer for the jobs that wait for it, now or later.
create table rowlock_completion (
  name text primary key,
  answer text check (json_valid(answer)),
  completed_at integer not null
) strict;

-- A dependency that kinds are bound to. While it is not closed, nobody claims those kinds but for the probes.
create table rowlock_breaker (
  name text primary key not null,
  state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
  forced integer not null default 0,
  failures integer not null default 0,
  trips integer not null default 0,
  open_until integer,
  threshold integer not null,
  cooldown_us integer not null,
  cooldown_max_us integer not null,
  probes integer not null,
  version integer not null default 1,
  changed_at integer not null,
  changed_by text not null,
  reason text
) strict;

-- Every change of a breaker's state.
create table rowlock_breaker_log (
  name text not null,
  version integer not null,
  from_state text not null,
  to_state text not null,
  forced integer not null,
  changed_at integer not null,
  changed_by text not null,
  reason text,
  primary key (name, version)
) strict;

-- What the sweep walks.
create index rowlock_breaker_log_changed on rowlock_breaker_log (changed_at);

-- Who tries a half-open breaker. A row holds only while the lease of its token does.
create table rowlock_probe (
  name text not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  primary key (name, id)
) strict;

-- Every job with its state, owner, attempts, last error and next due time. Times are microseconds since the epoch.
create view rowlock_jobs as
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
from rowlock_job j
left join rowlock_lease l on l.id = j.id
left join rowlock_ready r on r.id = j.id
left join rowlock_case_file c on c.id = j.id
left join rowlock_waiting w on w.id = j.id
left join rowlock_job_key k on k.id = j.id
left join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id);

-- The numbers that names have in the narrow tables, of every queue and kind that a worker has ever served: SQLite cannot work
-- them out by itself.
create table rowlock_name (
  no integer primary key,
  name text not null
) strict;

-- The verbs of people as plain SQL: insert into rowlock_verb (verb, id, actor) values ('cancel', 42, 'ann'). Each does what it
-- says or refuses, and is noted in the audit. `at` is when a delayed job is due, and a job without one is due now; `target` is
-- what is paused or resumed: queue:mail, kind:send-mail or group:account:42. The columns behind it are the library's own.
create view rowlock_verb as
select
  '' as verb, 0 as id, '' as actor, null as at, null as reason, null as target, null as now, null as queue_no, null as kind_no
where 0;

create trigger rowlock_verb_unknown instead of insert on rowlock_verb
when new.verb is null or new.verb not in ('delay', 'run now', 'cancel', 'retire', 'pause', 'resume', 'close', 'reopen', 'rerun')
begin
  select raise(abort, 'RL011: unknown verb; the verbs are delay, run now, cancel, retire, pause, resume, close, reopen and rerun');
end;

create trigger rowlock_verb_delay instead of insert on rowlock_verb when new.verb in ('delay', 'run now')
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      then raise(abort, 'RL011: the job is leased, a case or finished, and cannot be delayed')
    when new.verb = 'delay' and new.at is null then raise(abort, 'RL011: the time is missing; say until when')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  select
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, new.verb, p.id, p.place, p.due_at,
    max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  from (
    select r.id, 'ready' as place, r.due_at from rowlock_ready r where r.id = new.id
    union all
    select w.id, 'waiting', w.due_at from rowlock_waiting w where w.id = new.id
  ) p;
  update rowlock_ready set due_at = max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  where id = new.id;
  update rowlock_waiting set due_at = max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  where id = new.id;
end;

create trigger rowlock_verb_cancel instead of insert on rowlock_verb when new.verb = 'cancel'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is a case, and cannot be cancelled')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      and not exists (select 1 from rowlock_lease l where l.id = new.id)
      then raise(abort, 'RL011: the job is finished, and cannot be cancelled')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    p.id, p.epoch, p.worker, p.attempt, 'cancelled', coalesce(p.since, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'cancelled by ' || new.actor || coalesce(': ' || new.reason, '')
  from (
    select r.id, r.epoch + 1 as epoch, 0 as worker, r.attempt, null as since from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, 0, w.attempt, w.since from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, 0, l.attempt, l.claimed_at from rowlock_lease l where l.id = new.id
  ) p;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'cancel', new.id, new.reason,
    case
      when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready'
      when exists (select 1 from rowlock_waiting w where w.id = new.id) then 'waiting'
      else 'leased'
    end, 'finished'
  );
  delete from rowlock_ready where id = new.id;
  delete from rowlock_waiting where id = new.id;
  delete from rowlock_lease where id = new.id;
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no and rowlock_job_group.paused = 0)
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job j
  join rowlock_job_group g on g.no = j.group_no
  join rowlock_waiting w on w.id = g.head
  where j.id = new.id;
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job j join rowlock_job_group g on g.no = j.group_no where j.id = new.id
  );
  delete from rowlock_job_group
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head is null and paused = 0;
end;

create trigger rowlock_verb_retire instead of insert on rowlock_verb when new.verb = 'retire'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is a case, and cannot be retired')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      and not exists (select 1 from rowlock_lease l where l.id = new.id)
      then raise(abort, 'RL011: the job is finished, and cannot be retired')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    p.id, p.epoch, 0, p.attempt, 'retired', coalesce(p.since, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'retired by ' || new.actor || coalesce(': ' || new.reason, '')
  from (
    select r.id, r.epoch + 1 as epoch, r.attempt, null as since from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, w.attempt, null from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, l.attempt, l.claimed_at from rowlock_lease l where l.id = new.id
  ) p;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'retire', new.id, new.reason,
    case
      when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready'
      when exists (select 1 from rowlock_waiting w where w.id = new.id) then 'waiting'
      else 'leased'
    end, 'case'
  );
  insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    p.id, p.epoch, p.attempt, p.attempts_max, p.queue_no, p.kind_no, p.priority,
    'retired by ' || new.actor || coalesce(': ' || new.reason, ''), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    (
      select json_group_array(json_object(
        'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
        'started_at', strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
        'ended_at', strftime('%Y-%m-%dT%H:%M:%S', o.ended_at / 1000000, 'unixepoch') || printf('.%06dZ', o.ended_at % 1000000),
        'error', o.error))
      from (
        select x.epoch, x.attempt, x.outcome, x.worker, x.started_at, x.ended_at, x.error
        from rowlock_outcome x where x.id = new.id order by x.epoch
      ) o
    )
  from (
    select r.id, r.epoch + 1 as epoch, r.attempt, r.attempts_max, r.queue_no, r.kind_no, r.priority from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority from rowlock_lease l where l.id = new.id
  ) p;
  delete from rowlock_ready where id = new.id;
  delete from rowlock_waiting where id = new.id;
  delete from rowlock_lease where id = new.id;
  insert into rowlock_job (uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, trace, created_at)
  select
    j.if_retired ->> 'uid', j.if_retired ->> 'kind', j.if_retired ->> 'version', j.if_retired ->> 'queue',
    j.if_retired ->> 'priority', j.if_retired ->> 'attempts_max', j.if_retired -> 'payload',
    nullif(j.if_retired -> 'tags', 'null'), coalesce(j.chain, j.id), j.position + 1, j.trace, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
  from rowlock_job j join rowlock_case_file c on c.id = j.id
  where j.id = new.id and json_valid(j.if_retired) and j.was_done is not 1
    and not exists (
      select 1 from rowlock_effect e
      where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
        e.resolved_by is not null
        and e.ended_at >= (select o.started_at from rowlock_outcome o where o.id = c.id and o.epoch = c.epoch)
      ))
    )
    and not exists (
      select 1 from rowlock_job x
      where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = j.if_retired ->> 'uid'
    );
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select
    x.id, j.if_retired ->> 'queue_no', j.if_retired ->> 'kind_no', 0, x.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), 0, 0, x.attempts_max
  from rowlock_job j
  join rowlock_job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = j.if_retired ->> 'uid'
  -- It was enqueued just now, and stands nowhere yet.
  where j.id = new.id and json_valid(j.if_retired)
    and x.id = (select max(n.id) from rowlock_job n)
    and not exists (select 1 from rowlock_ready r where r.id = x.id)
    and not exists (select 1 from rowlock_lease l where l.id = x.id)
    and not exists (select 1 from rowlock_waiting w where w.id = x.id)
    and not exists (select 1 from rowlock_case_file c where c.id = x.id)
    and not exists (select 1 from rowlock_outcome o where o.id = x.id);
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no and rowlock_job_group.paused = 0)
  where no = (select j.group_no from rowlock_job j where j.id = new.id and coalesce(j.group_stops, 0) = 0) and head = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job j
  join rowlock_job_group g on g.no = j.group_no
  join rowlock_waiting w on w.id = g.head
  where j.id = new.id;
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job j join rowlock_job_group g on g.no = j.group_no where j.id = new.id
  );
  delete from rowlock_job_group
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head is null and paused = 0;
end;

-- Nothing happens where it was paused before. A group is known by its jobs, but for the library, which gives its number.
create trigger rowlock_verb_pause instead of insert on rowlock_verb when new.verb = 'pause'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when new.target is null or not (new.target glob 'queue:?*' or new.target glob 'kind:?*' or new.target glob 'group:?*')
      then raise(abort, 'RL012: not a valid target; use queue:NAME, kind:NAME or group:NAME')
    when new.target glob 'group:*' and new.id is null
      and not exists (select 1 from rowlock_job j where j.in_group = substr(new.target, 7))
      then raise(abort, 'RL010: no job is in this group')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail)
  select coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'pause', 0, new.target
  where not exists (select 1 from rowlock_setting s where s.name = 'pause:' || new.target);
  insert or ignore into rowlock_setting (name, value, changed_at, changed_by)
  values ('pause:' || new.target, '', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor);
  insert or ignore into rowlock_job_group (no, head, paused)
  select coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id), null, 1
  where new.target glob 'group:*';
  update rowlock_job_group set paused = 1
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  insert into rowlock_waiting (
    id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
  )
  select
    r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), g.no
  from rowlock_job_group g join rowlock_ready r on r.id = g.head
  where new.target glob 'group:*'
    and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  delete from rowlock_ready where id in (
    select g.head from rowlock_job_group g join rowlock_waiting w on w.id = g.head
    where new.target glob 'group:*'
      and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
  );
  update rowlock_job_group set head = null
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
    and exists (select 1 from rowlock_waiting w where w.id = head);
end;

-- Nothing happens where it was not paused.
create trigger rowlock_verb_resume instead of insert on rowlock_verb when new.verb = 'resume'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when new.target is null or not (new.target glob 'queue:?*' or new.target glob 'kind:?*' or new.target glob 'group:?*')
      then raise(abort, 'RL012: not a valid target; use queue:NAME, kind:NAME or group:NAME')
    when new.target glob 'group:*' and new.id is null
      and not exists (select 1 from rowlock_job j where j.in_group = substr(new.target, 7))
      then raise(abort, 'RL010: no job is in this group')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail)
  select coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'resume', 0, new.target
  where exists (select 1 from rowlock_setting s where s.name = 'pause:' || new.target);
  delete from rowlock_setting where name = 'pause:' || new.target;
  update rowlock_job_group
  set
    paused = 0,
    head = coalesce(head, (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no))
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job_group g join rowlock_waiting w on w.id = g.head
  where new.target glob 'group:*'
    and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job_group g
    where new.target glob 'group:*'
      and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
  );
  delete from rowlock_job_group
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
    and head is null;
end;

-- Closes a case for good, and its job is finished, as cancelled. What it has stopped goes on.
create trigger rowlock_verb_close instead of insert on rowlock_verb when new.verb = 'close'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when not exists (select 1 from rowlock_case_file c where c.id = new.id) then raise(abort, 'RL011: the job is not a case')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    c.id, c.epoch + 1, 0, c.attempt, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'closed by ' || new.actor || coalesce(': ' || new.reason, '')
  from rowlock_case_file c where c.id = new.id;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'close', new.id, new.reason, 'case', 'finished');
  delete from rowlock_case_file where id = new.id;
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no and rowlock_job_group.paused = 0)
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job j
  join rowlock_job_group g on g.no = j.group_no
  join rowlock_waiting w on w.id = g.head
  where j.id = new.id;
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job j join rowlock_job_group g on g.no = j.group_no where j.id = new.id
  );
  delete from rowlock_job_group
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head is null and paused = 0;
end;

-- Puts a case back with all its attempts: to ready, or to wait for its name where that is not completed, or for its turn behind
-- its group. The epoch goes on rising, so no old token fits again.
create trigger rowlock_verb_reopen instead of insert on rowlock_verb when new.verb = 'reopen'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_case_file c where c.id = new.id) then case
      when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
      else raise(abort, 'RL011: the job is not a case')
    end
  end;
  insert or ignore into rowlock_job_group (no, head)
  select j.group_no, j.id from rowlock_job j where j.id = new.id and j.group_no is not null;
  -- The head of a group that it has stopped still has its turn, unless the group is paused.
  update rowlock_job_group set head = null
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head = new.id and paused = 1;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select f.id, f.queue_no, f.kind_no, 0, f.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), f.epoch, 0, f.attempts_max
  from rowlock_case_file f left join rowlock_job j on j.id = f.id
  where f.id = new.id
    and (j.waits_for is null or exists (select 1 from rowlock_completion c where c.name = j.waits_for))
    and (j.group_no is null or f.id = (select g.head from rowlock_job_group g where g.no = j.group_no));
  insert into rowlock_waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
  )
  select
    f.id, case when j.group_no is null then j.waits_for end, f.queue_no, f.kind_no, f.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), f.epoch, 0, f.attempts_max,
    case when j.group_no is null then j.expires_at end, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), j.group_no
  from rowlock_case_file f join rowlock_job j on j.id = f.id
  where f.id = new.id and not exists (select 1 from rowlock_ready r where r.id = f.id);
  delete from rowlock_case_file where id = new.id;
  insert into rowlock_audit (at, actor, verb, id, before, after)
  select
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'reopen', new.id, 'case',
    case when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready' else 'waiting' end;
end;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch: by way of a case that nobody ever
-- sees, because reopening knows every place that a job may have to wait in.
create trigger rowlock_verb_rerun instead of insert on rowlock_verb when new.verb = 'rerun'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_ready r where r.id = new.id)
      or exists (select 1 from rowlock_waiting w where w.id = new.id)
      or exists (select 1 from rowlock_lease l where l.id = new.id)
      or exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is not finished, and cannot be re-run')
    when not exists (
      select 1 from rowlock_outcome o
      where o.id = new.id and o.outcome in ('done', 'cancelled')
        and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = new.id)
    ) then raise(abort, 'RL011: the history of the job was removed, and it cannot be re-run')
    when exists (select 1 from rowlock_job j where j.id = new.id and j.expires_at <= coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
      then raise(abort, 'RL011: the job has expired, and cannot be re-run')
    when new.queue_no is null and not exists (
      select 1 from rowlock_job j
      join rowlock_name q on q.name = j.queue
      join rowlock_name k on k.name = j.kind || '@' || j.version
      where j.id = new.id
    ) then raise(abort, 'RL011: no worker has served the queue and kind of the job yet; use the command line')
  end;
  insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    j.id, o.epoch, 0, j.attempts_max,
    coalesce(new.queue_no, (select max(n.no) from rowlock_name n where n.name = j.queue)),
    coalesce(new.kind_no, (select max(n.no) from rowlock_name n where n.name = j.kind || '@' || j.version)),
    j.priority, o.outcome, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), '[]'
  from rowlock_job j
  join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id)
  where j.id = new.id;
  update rowlock_job set
    reran_at = coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    was_done = case
      when exists (select 1 from rowlock_outcome o where o.id = new.id and o.outcome = 'done') then 1
      else was_done
    end
  where id = new.id;
  insert into rowlock_verb (verb, id, actor, now) values ('reopen', new.id, new.actor, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000));
  update rowlock_audit
  set
    verb = 'rerun', detail = new.reason,
    before = (select o.outcome from rowlock_outcome o where o.id = new.id order by o.epoch desc limit 1)
  where no = (select max(a.no) from rowlock_audit a where a.id = new.id and a.verb = 'reopen');
end;

-- How much waits per queue and kind, and since when its oldest is due, in microseconds since the epoch like every time. What is
-- ready is counted to 100,000 for each queue, kind and priority, what waits, is leased or a case to 100,000 in all, and `more`
-- says that there are more: it answers at once however long a backlog is.
create view rowlock_backlog as
with recursive clock as materialized (
  select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now
), lane as (
  select * from (
    select r.queue_no, r.kind_no, r.alone, r.priority from rowlock_ready r
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  )
  union all
  select n.queue_no, n.kind_no, n.alone, n.priority
  from lane l
  join rowlock_ready n on n.id = (
    select r.id from rowlock_ready r
    where (r.queue_no, r.kind_no, r.alone, r.priority) > (l.queue_no, l.kind_no, l.alone, l.priority)
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  )
), counted as materialized (
  select
    l.queue_no, l.kind_no,
    (
      select r.id from rowlock_ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
      order by r.due_at, r.id limit 1
    ) as sample,
    (
      select count(*) from (
        select 1 from rowlock_ready r
        where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
          and r.due_at <= c.now
        limit 100000
      )
    ) as due,
    (
      select count(*) from (
        select 1 from rowlock_ready r
        where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
          and r.due_at > c.now
        limit 100000
      )
    ) as scheduled
  from lane l cross join clock c
), place as (
  select
    n.queue_no, n.kind_no, n.sample, n.due, n.scheduled, 0 as waiting, 0 as leased, 0 as cases,
    case when r.due_at <= c.now then r.due_at end as oldest, n.due >= 100000 or n.scheduled >= 100000 as more
  from counted n cross join clock c left join rowlock_ready r on r.id = n.sample
  union all
  select w.queue_no, w.kind_no, min(w.id), 0, 0, count(*), 0, 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_waiting x limit 100000) w group by w.queue_no, w.kind_no
  union all
  select l.queue_no, l.kind_no, min(l.id), 0, 0, 0, count(*), 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_lease x limit 100000) l group by l.queue_no, l.kind_no
  union all
  select f.queue_no, f.kind_no, min(f.id), 0, 0, 0, 0, count(*), null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_case_file x limit 100000) f group by f.queue_no, f.kind_no
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(p.due) as due,
  sum(p.scheduled) as scheduled,
  sum(p.waiting) as waiting,
  sum(p.leased) as leased,
  sum(p.cases) as cases,
  -- Where one of the other places is not counted to its end, nobody knows of which queue the rest is.
  max(max(p.more), (select coalesce(max(x.more and x.due + x.scheduled = 0), 0) from place x)) as more,
  min(p.oldest) as oldest_due_at
from place p left join rowlock_job j on j.id = p.sample
group by 1, 2;

-- Who has which job, for how long, and whether the lease is over: a worker that is silent for longer than its lease has lost it.
create view rowlock_held as
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
  cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - l.claimed_at as held_for,
  w.beat as last_beat,
  coalesce(w.dead or w.beat < cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - w.lease_ms * 1000, 1) as expired
from rowlock_lease l
left join rowlock_worker w on w.id = l.worker
left join rowlock_job j on j.id = l.id;

-- Every job that is not simply waiting to be claimed for the first time: why, who has it, since when, how often it was tried, how
-- that ended, and when it may be tried again.
create view rowlock_stuck as
select
  s.id, j.kind, j.queue, s.state, s.why, s.holder,
  coalesce(s.since, (select x.ended_at from rowlock_outcome x where x.id = s.id order by x.epoch desc limit 1)) as since,
  s.attempt, s.attempts_max,
  (select x.error from rowlock_outcome x where x.id = s.id order by x.epoch desc limit 1) as last_error, s.eligible_at
from (
  select
    h.id, 'leased' as state, case when h.expired then 'its worker is silent' else 'it runs' end as why,
    coalesce(h.worker_name, h.worker) as holder, h.claimed_at as since, h.attempt, h.attempts_max, null as eligible_at
  from rowlock_held h
  union all
  select r.id, 'ready', 'it was tried', null, null, r.attempt, r.attempts_max, r.due_at
  from rowlock_ready r where r.epoch > 0
  union all
  select
    w.id, 'waiting',
    case
      when w.name is not null then 'it waits for ' || w.name
      when g.paused then 'its group is paused'
      else 'it waits behind job ' || coalesce(g.head, '?') || coalesce(', a case: ' || f.reason, '')
    end,
    null, w.since, w.attempt, w.attempts_max, null
  from rowlock_waiting w
  left join rowlock_job_group g on g.no = w.group_no
  left join rowlock_case_file f on f.id = g.head
  union all
  select c.id, 'case', c.reason, c.owner, c.retired_at, c.attempt, c.attempts_max, null
  from rowlock_case_file c
) s
left join rowlock_job j on j.id = s.id;

-- Outside calls of which nobody knows whether they happened.
create view rowlock_doubts as
select
  e.no, e.id, j.kind, j.queue, e.name, e.key, e.policy, e.tries, e.begun_at,
  cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - e.begun_at as in_doubt_for, e.error
from rowlock_effect e
left join rowlock_job j on j.id = e.id
where e.state in ('open', 'uncertain') and (e.state = 'uncertain' or not exists (
  select 1 from rowlock_lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker
));

-- Open cases by what they have in common.
create view rowlock_case_errors as
select
  e.no, e.error, count(*) as cases, e.first_seen, e.last_seen, e.seen, min(c.id) as oldest_case, max(c.id) as newest_case
from rowlock_case_file c
join rowlock_case_error e on e.no = c.error_no
group by e.no, e.error, e.first_seen, e.last_seen, e.seen;

-- What the file holds, and how much of it is free: rows that are removed leave pages behind, which the next ones use.
create view rowlock_dead_rows as
select p.page_count * s.page_size as bytes, f.freelist_count * s.page_size as free_bytes
from pragma_page_count p, pragma_freelist_count f, pragma_page_size s;
