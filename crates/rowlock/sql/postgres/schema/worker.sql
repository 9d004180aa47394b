-- One row per worker process, beaten as one whatever it holds.
create table rowlock.worker (
  id bigint primary key,
  name text not null,
  lease_ms bigint not null,
  beat timestamptz not null,
  dead boolean not null default false,
  started_at timestamptz not null,
  -- The job that a worker of the functions runs alone, or ran last: a claim looks it up and does not read all leases for it.
  alone bigint
) with (fillfactor = 50);
