-- Stores the answer, in the transaction that took the key; returns no row in any other transaction.
-- Index: rowlock_ledger by key.
update rowlock_ledger set answer = ?2 where key = ?1 and made_at = ?3
