-- A job's body. A job is in exactly one place (ready, waiting, lease, case_file), and each transition moves it.

-- The body is written once at enqueue, and later only by operators. Autoincrement makes sure that an id is never used
-- twice.
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

-- The root of a chain has a null chain. Its links carry the root's id.
create index rowlock_job_chain on rowlock_job (chain, position) where chain is not null;

-- A completion is kept while a body names it.
create index rowlock_job_waits_for on rowlock_job (waits_for) where waits_for is not null;

-- The jobs of one group, for operators.
create index rowlock_job_in_group on rowlock_job (in_group, id) where in_group is not null;
