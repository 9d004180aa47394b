-- Takes the write lock for the rest of the transaction, and writes nothing.
-- Index: none; no row matches. The holder of the write lock is the only writer, so one lock serves every guard.
-- It fails if the transaction read before another transaction wrote.
delete from rowlock_guard_version where false
