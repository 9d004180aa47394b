-- How many dead workers still hold something.
-- Index: none; one row per process.
select count(*) from rowlock_worker where dead = 1
