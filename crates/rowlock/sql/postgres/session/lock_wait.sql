-- Bounds how long this transaction's next statements wait for a lock, and says what the bound was.
-- Index: none.
-- no twin: a SQLite connection waits by its own busy time-out.
select current_setting('lock_timeout') as before, set_config('lock_timeout', $1, true) as bound
