-- What was done once, by key, with the answer that every repeat gets. The answer is null if the first caller gave none.
create table rowlock_ledger (
  key text primary key,
  fingerprint blob,
  answer text check (json_valid(answer)),
  hold text not null check (hold in ('policy', 'period', 'ever')),
  expires_at integer,
  made_at integer not null
) strict;

-- The sweep reads this index.
create index rowlock_ledger_made on rowlock_ledger (hold, made_at);
