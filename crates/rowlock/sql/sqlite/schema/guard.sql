-- A counter per guarded thing. Every change raises it, so that a thing that was opened and closed differs from an
-- untouched one.
create table rowlock_guard_version (
  key text primary key,
  version integer not null,
  changed_at integer not null
) strict;

-- The holders of body locks, by key. A row is valid only while its token has its lease.
create table rowlock_body_lock (
  key text not null,
  slot integer not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  taken_at integer not null,
  primary key (key, slot)
) strict;
