-- Stores the answer, in the transaction that took the key; returns no row in any other transaction.
-- Index: ledger_pkey.
-- Another transaction does not see the entry yet.
update rowlock.ledger set answer = $2::json where key = $1 and made_at = $3
