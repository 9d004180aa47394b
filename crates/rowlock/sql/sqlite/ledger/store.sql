-- Stores the answer of the transaction that took the key. Any other has no such entry: no row.
-- Index: rowlock_ledger by key.
update rowlock_ledger set answer = ?2 where key = ?1 and made_at = ?3
