-- A counter per guarded thing. Every change raises it, so that a thing that was opened and closed differs from an
-- untouched one.
create table rowlock.guard_version (
  key text primary key,
  version bigint not null,
  changed_at timestamptz not null
);

-- The holders of body locks, by key. A row is valid only while its token has its lease.
create table rowlock.body_lock (
  key text not null,
  slot int not null,
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  taken_at timestamptz not null,
  primary key (key, slot)
);
