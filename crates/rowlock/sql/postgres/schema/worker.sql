-- One row per worker process. One heartbeat renews everything that the worker holds.
create table rowlock.worker (
  id bigint primary key,
  name text not null,
  lease_ms bigint not null,
  beat timestamptz not null,
  dead boolean not null default false,
  started_at timestamptz not null,
  -- The job that a worker of the functions runs alone, or ran last. A claim looks it up here instead of reading all
  -- leases.
  alone bigint
) with (fillfactor = 50);
