-- Foundation: the places a job can be, the outcome log, workers, audit and the view.

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
  created_at integer not null
) strict;

-- A chain's root has no chain of its own; its links carry the root's id.
create index rowlock_job_chain on rowlock_job (chain, position) where chain is not null;

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
  history text not null check (json_valid(history))
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
  detail text
) strict;

create index rowlock_audit_id on rowlock_audit (id);

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
from rowlock_job j
left join rowlock_lease l on l.id = j.id
left join rowlock_ready r on r.id = j.id
left join rowlock_case_file c on c.id = j.id
left join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id);
