-- A dependency that kinds are bound to. While the breaker is not closed, workers claim only probes of those kinds.
create table rowlock.breaker (
  name text primary key,
  state text not null default 'closed' check (state in ('closed', 'open', 'half_open')),
  forced boolean not null default false,
  failures int not null default 0,
  trips int not null default 0,
  open_until timestamptz,
  threshold int not null,
  cooldown_us bigint not null,
  cooldown_max_us bigint not null,
  probes int not null,
  version bigint not null default 1,
  changed_at timestamptz not null,
  changed_by text not null,
  reason text
);

-- Every change of a breaker's state.
create table rowlock.breaker_log (
  name text not null,
  version bigint not null,
  from_state text not null,
  to_state text not null,
  forced boolean not null,
  changed_at timestamptz not null,
  changed_by text not null,
  reason text,
  primary key (name, version)
);

-- The sweep reads this index.
create index breaker_log_changed on rowlock.breaker_log (changed_at);

-- The probes of a half-open breaker. A row is valid only while its token has its lease.
create table rowlock.probe (
  name text not null,
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  primary key (name, id)
);
