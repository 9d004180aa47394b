-- What was done once, by key, with the answer that every repeat gets. The answer is null when the first gave none.
create table rowlock.ledger (
  -- In byte order, so that all keys with one prefix are found by the primary key.
  key text collate "C" primary key,
  fingerprint bytea,
  answer json,
  hold text not null check (hold in ('policy', 'period', 'ever')),
  expires_at timestamptz,
  made_at timestamptz not null
);

-- What the sweep walks.
create index ledger_made on rowlock.ledger (hold, made_at);
