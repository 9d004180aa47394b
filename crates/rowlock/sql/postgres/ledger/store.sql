-- Stores the answer of the transaction that took the key. Another transaction does not see the entry yet: no row.
-- Index: ledger_pkey.
update rowlock.ledger set answer = $2::json where key = $1 and made_at = $3
