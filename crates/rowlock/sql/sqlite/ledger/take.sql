-- Takes a ledger key for this transaction, and takes the write lock; the first caller gets a row.
-- Index: rowlock_ledger by key.
insert into rowlock_ledger (key, fingerprint, hold, expires_at, made_at)
values (?1, ?2, ?3, ?5 + ?4, ?5)
on conflict (key) do nothing
returning made_at
