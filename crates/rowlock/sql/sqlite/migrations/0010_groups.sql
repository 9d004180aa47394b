-- The group a job is in, and whether the group stops when the job is retired.
alter table rowlock_job add column in_group text;
alter table rowlock_job add column group_no integer;
alter table rowlock_job add column group_stops integer;

-- The jobs of one group, for people.
create index rowlock_job_in_group on rowlock_job (in_group, id) where in_group is not null;

drop view rowlock_jobs;

-- A column cannot be made to allow null, so the table is made anew.
create table rowlock_waiting_before as select * from rowlock_waiting;

drop table rowlock_waiting;

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

insert into rowlock_waiting (
  id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
)
select id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
from rowlock_waiting_before;

drop table rowlock_waiting_before;

-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Only a paused group has no head.
create table rowlock_job_group (
  no integer primary key,
  head integer,
  paused integer not null default 0
) strict;

create index rowlock_job_group_paused on rowlock_job_group (no) where paused = 1;

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
