-- Counts the dead workers that still hold something.
-- Index: none; one row per process.
-- only here: PostgreSQL counts inside worker/forget_dead.sql.
select count(*) from rowlock_worker where dead = 1
