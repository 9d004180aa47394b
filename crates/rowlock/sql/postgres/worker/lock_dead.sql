-- First half of forgetting: locks dead workers, so that the second half's snapshot is newer than any claim of theirs.
-- Index: none; one row per process.
-- no twin: sqlite has one writer, so nobody can claim between two statements of a transaction.
select id from rowlock.worker where dead for update skip locked
