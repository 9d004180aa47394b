-- Drops outcome partitions whose every row ended before the given time.
-- Index: none.
-- no twin: sqlite has no partitions; its job/prune.sql removes history row by row.
select rowlock.drop_history($1)
