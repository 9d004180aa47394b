-- Drops the outcome partitions whose rows all ended before the given time.
-- Index: none.
-- only here: SQLite has no partitions; its job/prune.sql removes history row by row.
select rowlock.drop_history($1)
