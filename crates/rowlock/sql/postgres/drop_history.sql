-- Drops outcome partitions whose every row ended before the given time.
-- Index: none.
select rowlock.drop_history($1)
