-- The caller's name for a logical operation: one job per key while the key is held, decided by the primary key. A key
-- that is held by policy or for a period stays held for as long as its job is in any place.
create table rowlock.job_key (
  key text primary key,
  id bigint not null,
  fingerprint bytea not null,
  hold text not null check (hold in ('open', 'policy', 'period', 'ever')),
  expires_at timestamptz,
  made_at timestamptz not null
);

create index job_key_id on rowlock.job_key (id);

-- The sweep reads this index.
create index job_key_made on rowlock.job_key (hold, made_at);
