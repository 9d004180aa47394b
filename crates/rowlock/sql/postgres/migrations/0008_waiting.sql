-- Waits for somebody outside to complete the name; then it moves to ready. Past its limit it ends as said.
create table rowlock.waiting (
  id bigint primary key,
  name text not null,
  queue_no bigint not null,
  kind_no bigint not null,
  priority smallint not null,
  due_at timestamptz not null,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null,
  limit_at timestamptz,
  limit_ends text not null check (limit_ends in ('retired', 'cancelled')),
  since timestamptz not null
);

create index waiting_name on rowlock.waiting (name);
create index waiting_limit on rowlock.waiting (limit_at) where limit_at is not null;

-- What was completed, with the answer for the jobs that wait for it, now or later.
create table rowlock.completion (
  name text primary key,
  answer json,
  completed_at timestamptz not null
);

-- The name a job waits for; its handler finds the answer by it.
alter table rowlock.job add column waits_for text;

-- A completion is kept while a body names it.
create index job_waits_for on rowlock.job (waits_for) where waits_for is not null;

-- Every job with its state, owner, attempts, last error and next due time.
create or replace view rowlock.jobs as
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
