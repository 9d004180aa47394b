-- Waits for somebody outside to complete the name; then it moves to ready. Past its limit it ends as said.
create table rowlock_waiting (
  id integer primary key,
  name text not null,
  queue_no integer not null,
  kind_no integer not null,
  priority integer not null,
  due_at integer not null,
  epoch integer not null,
  attempt integer not null,
  attempts_max integer not null,
  limit_at integer,
  limit_ends text not null check (limit_ends in ('retired', 'cancelled')),
  since integer not null
) strict;

create index rowlock_waiting_name on rowlock_waiting (name);
create index rowlock_waiting_limit on rowlock_waiting (limit_at) where limit_at is not null;

-- What was completed, with the answer for the jobs that wait for it, now or later.
create table rowlock_completion (
  name text primary key,
  answer text check (json_valid(answer)),
  completed_at integer not null
) strict;

-- The name a job waits for; its handler finds the answer by it.
alter table rowlock_job add column waits_for text;

-- A completion is kept while a body names it.
create index rowlock_job_waits_for on rowlock_job (waits_for) where waits_for is not null;

drop view rowlock_jobs;

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
  k.key
from rowlock_job j
left join rowlock_lease l on l.id = j.id
left join rowlock_ready r on r.id = j.id
left join rowlock_case_file c on c.id = j.id
left join rowlock_waiting w on w.id = j.id
left join rowlock_job_key k on k.id = j.id
left join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id);
