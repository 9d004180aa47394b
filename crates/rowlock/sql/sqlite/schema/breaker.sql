-- A dependency that kinds are bound to. While the breaker is not closed, workers claim only probes of those kinds.
create table rowlock_breaker (
  name text primary key not null,
  state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
  forced integer not null default 0,
  failures integer not null default 0,
  trips integer not null default 0,
  open_until integer,
  threshold integer not null,
  cooldown_us integer not null,
  cooldown_max_us integer not null,
  probes integer not null,
  version integer not null default 1,
  changed_at integer not null,
  changed_by text not null,
  reason text
) strict;

-- Every change of a breaker's state.
create table rowlock_breaker_log (
  name text not null,
  version integer not null,
  from_state text not null,
  to_state text not null,
  forced integer not null,
  changed_at integer not null,
  changed_by text not null,
  reason text,
  primary key (name, version)
) strict;

-- The sweep reads this index.
create index rowlock_breaker_log_changed on rowlock_breaker_log (changed_at);

-- The probes of a half-open breaker. A row is valid only while its token has its lease.
create table rowlock_probe (
  name text not null,
  id integer not null,
  epoch integer not null,
  worker integer not null,
  primary key (name, id)
) strict;
