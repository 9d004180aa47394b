-- A counter per guarded thing, raised by everyone who changes it: it tells opened-then-closed from untouched.
create table rowlock.guard_version (
  key text primary key,
  version bigint not null,
  changed_at timestamptz not null
);

-- Who may be in the body of work under a key. A row holds only while the lease of its token does.
create table rowlock.body_lock (
  key text not null,
  slot int not null,
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  taken_at timestamptz not null,
  primary key (key, slot)
);
