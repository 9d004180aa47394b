-- Makes every COMMIT of the transaction fail until the cursor is closed.
-- Index: none.
-- A commit would have to read the cursor to its end, and the value it reads is no number.
-- only here: in SQLite, a commit hook does the same.
declare rowlock_seal cursor with hold for select current_setting('rowlock_tx.seal')::integer
