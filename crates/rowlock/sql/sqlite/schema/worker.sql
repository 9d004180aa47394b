-- One row per worker process, beaten as one whatever it holds. A beat may be late because somebody's transaction
-- held the only write lock, so a stale worker is a suspect first, and dead when it is seen stale again.
create table rowlock_worker (
  id integer primary key,
  name text not null,
  lease_ms integer not null,
  beat integer not null,
  suspect_at integer,
  dead integer not null default 0 check (dead in (0, 1)),
  started_at integer not null
) strict;
