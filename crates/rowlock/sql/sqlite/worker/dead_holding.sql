-- How many dead workers still hold something.
-- Index: none; one row per process.
-- no twin: postgresql counts inside worker/forget_dead.sql.
select count(*) from rowlock_worker where dead = 1
