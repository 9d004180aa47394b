-- Limits how long the next statements of this transaction wait for a lock; returns the previous limit.
-- Index: none.
-- only here: a SQLite connection waits by its own busy time-out.
select current_setting('lock_timeout') as before, set_config('lock_timeout', $1, true) as bound
