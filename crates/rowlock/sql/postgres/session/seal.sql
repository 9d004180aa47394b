-- Makes every COMMIT of the transaction fail until the cursor is closed: it would have to be read to its end there, and what it reads is no number.
-- Index: none.
-- no twin: in sqlite a commit hook does the same.
declare rowlock_seal cursor with hold for select current_setting('rowlock_tx.seal')::integer
