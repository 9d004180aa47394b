-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock_guard_version (
  key text primary key,
  version integer not null,
  changed_at integer not null
) strict;
