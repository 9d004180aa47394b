-- Takes the write lock for the rest of the transaction and writes nothing; fails when the transaction read before another one wrote.
-- Index: none; no row matches. Whoever holds the write lock is alone, so one lock serves every guard.
delete from rowlock_guard_version where false
