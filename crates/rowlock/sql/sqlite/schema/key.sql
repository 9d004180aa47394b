-- The caller's name for a logical operation: one job per key while the key is held, decided by the primary key. A key
-- that is held by policy or for a period stays held for as long as its job is in any place.
create table rowlock_job_key (
  key text primary key,
  id integer not null,
  fingerprint blob not null,
  hold text not null check (hold in ('open', 'policy', 'period', 'ever')),
  expires_at integer,
  made_at integer not null
) strict;

create index rowlock_job_key_id on rowlock_job_key (id);

-- The sweep reads this index.
create index rowlock_job_key_made on rowlock_job_key (hold, made_at);
