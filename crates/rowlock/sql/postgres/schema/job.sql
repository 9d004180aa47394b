-- A job's body. A job is in exactly one place (ready, waiting, lease, case_file), and each transition moves it.

create sequence rowlock.job_id;

-- The body is written once at enqueue, and later only by operators, so it rarely leaves a dead row.
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

-- This index costs almost nothing, and finds what retention may remove.
create index job_created on rowlock.job using brin (created_at);

-- The root of a chain has a null chain. Its links carry the root's id.
create index job_chain on rowlock.job (chain, position) where chain is not null;

-- A completion is kept while a body names it.
create index job_waits_for on rowlock.job (waits_for) where waits_for is not null;

-- The jobs of one group, for operators.
create index job_in_group on rowlock.job (in_group, id) where in_group is not null;
