-- Takes a key of the ledger for this transaction: a row comes back for the first caller. Takes the write lock.
-- Index: rowlock_ledger by key.
insert into rowlock_ledger (key, fingerprint, hold, expires_at, made_at)
values (?1, ?2, ?3, ?5 + ?4, ?5)
on conflict (key) do nothing
returning made_at
