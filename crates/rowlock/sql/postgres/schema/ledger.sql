-- What was done once, by key, with the answer that every repeat gets. The answer is null if the first caller gave none.
create table rowlock.ledger (
  -- In byte order, so that the primary key finds all keys with one prefix.
  key text collate "C" primary key,
  fingerprint bytea,
  answer json,
  hold text not null check (hold in ('policy', 'period', 'ever')),
  expires_at timestamptz,
  made_at timestamptz not null
);

-- The sweep reads this index.
create index ledger_made on rowlock.ledger (hold, made_at);
