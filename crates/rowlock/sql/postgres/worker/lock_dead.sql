-- Locks dead workers, so that the next statement's snapshot is newer than any claim of theirs.
-- Index: none; one row per process.
-- This is the first half of forgetting; worker/forget_dead.sql is the second.
-- only here: SQLite has one writer, so no worker can claim between two statements of a transaction.
select id from rowlock.worker where dead for update skip locked
