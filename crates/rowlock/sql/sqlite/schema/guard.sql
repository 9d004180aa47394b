-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock_guard_version (
  key text primary key,
  version integer not null,
  changed_at integer not null
) strict;

-- Who may be in the body of work under a key. A row holds only while the lease of its token does.
create table rowlock_body_lock (
  key text not null,
  slot integer not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  taken_at integer not null,
  primary key (key, slot)
) strict;
