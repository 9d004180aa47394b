-- One row per worker process. One heartbeat renews everything that the worker holds. A heartbeat may be late because
-- another transaction held the only write lock. So a stale worker is first suspected, and declared dead when it is seen
-- stale again.
create table rowlock_worker (
  id integer primary key,
  name text not null,
  lease_ms integer not null,
  beat integer not null,
  suspect_at integer,
  dead integer not null default 0 check (dead in (0, 1)),
  started_at integer not null
) strict;
