-- First half of forgetting: locks dead workers, so that the second half's snapshot is newer than any claim of theirs.
-- Index: none; one row per process.
select id from rowlock.worker where dead for update skip locked
