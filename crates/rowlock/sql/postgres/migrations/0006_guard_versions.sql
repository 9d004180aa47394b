-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock.guard_version (
  key text primary key,
  version bigint not null,
  changed_at timestamptz not null
);
