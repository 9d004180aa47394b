-- A job that waits for its name to be completed, or for its turn behind the head of its group. Then the job moves to
-- ready. Past its limit it ends as set at enqueue.
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

-- The next job of a group is the one with the smallest id.
create index waiting_group on rowlock.waiting (group_no, id) where group_no is not null;

-- The completed names, with the answer for the jobs that wait for them, now or later.
create table rowlock.completion (
  name text primary key,
  answer json,
  completed_at timestamptz not null
);
