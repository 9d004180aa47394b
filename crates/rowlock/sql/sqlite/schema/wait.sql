-- A job that waits for its name to be completed, or for its turn behind the head of its group. Then the job moves to
-- ready. Past its limit it ends as set at enqueue.
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

-- The next job of a group is the one with the smallest id.
create index rowlock_waiting_group on rowlock_waiting (group_no, id) where group_no is not null;

-- The completed names, with the answer for the jobs that wait for them, now or later.
create table rowlock_completion (
  name text primary key,
  answer text check (json_valid(answer)),
  completed_at integer not null
) strict;
